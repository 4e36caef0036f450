package manager

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

var errBadKey = fault.New(fault.Unauthenticated, "the key is not known here, or was revoked, or is over").WithCode("bad_key")

const (
	// keyTrust is how long a key that was looked up is taken for good without
	// another look: a key that another manager revoked works for so long here.
	keyTrust = 5 * time.Second
	// keyStale is how long it is while the database is away, so that whoever was
	// here before can still stop what runs.
	keyStale = 10 * time.Minute
	// maxKnown bounds how many keys are remembered.
	maxKnown = 4096
	// useEvery is how exact the last use of a key is.
	useEvery = time.Minute
)

// keyring remembers keys that were looked up, so that a request costs no query,
// and when each was last used.
type keyring struct {
	mu    sync.Mutex
	known map[[32]byte]*knownKey
}

type knownKey struct {
	key    policy.Key
	looked time.Time
	used   time.Time // zero when that is written down
}

func newKeyring() *keyring { return &keyring{known: map[[32]byte]*knownKey{}} }

// get returns a key that was looked up not too long ago, and notes its use.
func (r *keyring) get(hash [32]byte, now time.Time, trust time.Duration) (policy.Key, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[hash]
	if k == nil || now.Sub(k.looked) >= trust {
		return policy.Key{}, false
	}
	if now.Sub(k.key.UsedAt) >= useEvery {
		k.used, k.key.UsedAt = now, now
	}
	return k.key, true
}

func (r *keyring) put(hash [32]byte, key policy.Key, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= maxKnown {
		clear(r.known) // what is used is looked up again
	}
	k := &knownKey{key: key, looked: now}
	if old := r.known[hash]; old != nil {
		k.used = old.used
	}
	if now.Sub(key.UsedAt) >= useEvery {
		k.used, k.key.UsedAt = now, now
	}
	r.known[hash] = k
}

// forget drops a key at once.
func (r *keyring) forget(hash [32]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, hash)
}

// uses returns the uses that are not written down yet, and counts them as
// written.
func (r *keyring) uses() map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]time.Time{}
	for _, k := range r.known {
		if !k.used.IsZero() {
			out[k.key.ID], k.used = k.used, time.Time{}
		}
	}
	return out
}

// Authenticate returns the caller that a secret stands for.
func (m *Manager) Authenticate(ctx context.Context, secret string) (policy.Caller, error) {
	if id, ok := live.TokenOf(secret); ok {
		return m.tokenCaller(ctx, id, secret)
	}
	now, hash := m.Now(), policy.HashKey(secret)
	k, ok := m.keys.get(hash, now, keyTrust)
	if !ok {
		err := m.Store.View(ctx, func(tx store.Tx) (err error) {
			k, err = tx.Keys().ByHash(ctx, hash)
			return err
		})
		switch {
		case fault.Is(err, fault.NotFound):
			return policy.Caller{}, errBadKey
		case err != nil:
			if k, ok = m.keys.get(hash, now, keyStale); !ok {
				return policy.Caller{}, err
			}
		case k.Good(now):
			m.keys.put(hash, k, now)
		}
	}
	if !k.Good(now) {
		m.keys.forget(hash)
		return policy.Caller{}, errBadKey
	}
	return k.Caller(), nil
}

// tokenCaller returns the caller of a sandbox's token. It is looked up each
// time: the token ends with the sandbox.
func (m *Manager) tokenCaller(ctx context.Context, id, token string) (policy.Caller, error) {
	var s live.Sandbox
	err := m.Store.View(ctx, func(tx store.Tx) (err error) {
		s, err = tx.Sandboxes().Get(ctx, id)
		return err
	})
	if fault.Is(err, fault.NotFound) || err == nil && s.CheckToken(token, m.Now()) != nil {
		return policy.Caller{}, errBadKey
	}
	if err != nil {
		return policy.Caller{}, err
	}
	return policy.Caller{Kind: policy.Sandbox, ID: s.Owner, Key: "sandbox-" + s.ID, Sandbox: s.ID}, nil
}

// SandboxToken makes a token for a sandbox of the caller's.
func (m *Manager) SandboxToken(ctx context.Context, id string, ttl time.Duration) (token string, until time.Time, err error) {
	if ttl < time.Second || ttl > live.MaxTokenTime {
		return "", until, fault.Field("ttl", "must be from 1 second to 24 hours")
	}
	s, err := m.Sandbox(ctx, id)
	if err != nil {
		return "", until, err
	}
	if !s.Open() {
		return "", until, fault.New(fault.Conflict, "The sandbox has ended, and so has every token of it.").WithCode("sandbox_ended")
	}
	until = m.Now().Add(ttl).UTC().Truncate(time.Second)
	err = m.acted(ctx, store.Act{Source: "manager", Action: "token.create", Target: id, After: map[string]any{"until": until}})
	if err != nil {
		return "", until, err
	}
	return s.Token(until), until, nil
}

// MakeKeys makes the keys of the given kinds that do not exist yet, and hands
// each new secret to show before the key becomes good: a secret that could not
// be handed over leaves no key behind.
func (m *Manager) MakeKeys(ctx context.Context, kinds []policy.Kind, show func(policy.Key, string) error) error {
	return m.Store.Update(ctx, func(tx store.Tx) error {
		have, err := tx.Keys().List(ctx)
		if err != nil {
			return err
		}
		exists := map[policy.Kind]bool{}
		for i := range have {
			exists[have[i].Kind] = exists[have[i].Kind] || have[i].Good(m.Now()) && have[i].Scope.Empty()
		}
		for _, kind := range kinds {
			if exists[kind] {
				continue
			}
			k, secret := policy.NewKey(kind, "made at first start", m.Now())
			if err := show(k, secret); err != nil {
				return err
			}
			if err := m.addKey(ctx, tx, k, policy.System().ID); err != nil {
				return err
			}
		}
		return nil
	})
}

func (m *Manager) addKey(ctx context.Context, tx store.Tx, k policy.Key, actor string) error {
	if err := tx.Keys().Add(ctx, k); err != nil {
		return err
	}
	return tellKey(ctx, tx, event.KeyCreated, &k, actor, m.Now())
}

// tellKey writes down what happened to a key.
func tellKey(ctx context.Context, tx store.Tx, t event.Type, k *policy.Key, actor string, at time.Time) error {
	err := tx.Audit().Append(ctx, &audit.Record{
		At: at, Category: audit.Access, Severity: audit.Warning, Action: string(t), Source: "manager", Actor: actor, Target: k.ID,
		Metadata: map[string]string{"kind": string(k.Kind), "name": k.Name, "owner": k.Scope.Owner, "project": projectName(k.Scope.Project)},
	})
	if err != nil {
		return err
	}
	return tx.Events().Append(ctx, &event.Event{Type: t, Version: 1, Entity: "key", EntityID: k.ID, Actor: actor, At: at})
}

// projectName is a project as the audit names it; "" is none.
func projectName(id int64) string {
	if id == 0 {
		return ""
	}
	return strconv.FormatInt(id, 10)
}

// maxKeys bounds how many good keys there are.
const maxKeys = 10_000

// CreateKey makes a key. The secret is returned this once; only its hash is
// kept.
func (m *Manager) CreateKey(ctx context.Context, req policy.KeyRequest) (k policy.Key, secret string, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return k, "", err
	}
	if err := req.Check(m.Now()); err != nil {
		return k, "", err
	}
	if !c.MayGrant(req.Kind) {
		return k, "", fault.New(fault.Denied, "A key of kind %q cannot make one of kind %q: nobody makes a key that can do more than their own.", c.Kind, req.Kind).WithCode("cannot_grant")
	}
	k, secret = policy.NewKey(req.Kind, req.Name, m.Now().UTC().Truncate(time.Microsecond))
	k.CreatedBy, k.ExpiresAt, k.Scope = c.Actor(), req.ExpiresAt.UTC().Truncate(time.Microsecond), req.Scope
	err = m.Store.Update(ctx, func(tx store.Tx) error {
		have, err := tx.Keys().List(ctx)
		if err != nil {
			return err
		}
		if len(have) >= maxKeys {
			return fault.New(fault.Exhausted, "There are %d keys, which is the most.", maxKeys).WithCode("too_many_keys")
		}
		return m.addKey(ctx, tx, k, c.Actor())
	})
	if err != nil {
		return policy.Key{}, "", err
	}
	return k, secret, nil
}

// Keys lists the keys, the oldest first, without their secrets, which nobody
// has.
func (m *Manager) Keys(ctx context.Context) (list []policy.Key, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return nil, err
	}
	if !c.Scope.Empty() {
		return nil, fault.New(fault.Denied, "A key that is narrowed does not see the others.").WithCode("narrowed_key")
	}
	m.writeUses(ctx)
	err = m.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Keys().List(ctx)
		return err
	})
	return list, err
}

// RevokeKey ends a key. One that was revoked before stays so.
func (m *Manager) RevokeKey(ctx context.Context, id string) (k policy.Key, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return k, err
	}
	err = m.Store.Update(ctx, func(tx store.Tx) error {
		if k, err = tx.Keys().Get(ctx, id); err != nil {
			if fault.Is(err, fault.NotFound) {
				return fault.New(fault.NotFound, "There is no such key; GET /keys lists them.")
			}
			return err
		}
		if !c.MayGrant(k.Kind) {
			return fault.New(fault.Denied, "A key of kind %q cannot revoke one of kind %q.", c.Kind, k.Kind).WithCode("cannot_grant")
		}
		if !k.RevokedAt.IsZero() {
			return nil
		}
		if err := demandAdmin(ctx, tx, &k, m.Now()); err != nil {
			return err
		}
		k.RevokedAt = m.Now().UTC().Truncate(time.Microsecond)
		if err := tx.Keys().Revoke(ctx, id, k.RevokedAt); err != nil {
			return err
		}
		return tellKey(ctx, tx, event.KeyRevoked, &k, c.Actor(), k.RevokedAt)
	})
	if err != nil {
		return policy.Key{}, err
	}
	m.keys.forget(k.Hash)
	return k, nil
}

// demandAdmin refuses to end the last key that can make keys: nobody could ever
// make one again.
func demandAdmin(ctx context.Context, tx store.Tx, k *policy.Key, now time.Time) error {
	if k.Kind != policy.Admin {
		return nil
	}
	list, err := tx.Keys().List(ctx)
	if err != nil {
		return err
	}
	for i := range list {
		if o := &list[i]; o.ID != k.ID && o.Kind == policy.Admin && o.Scope.Empty() && o.Good(now) && o.ExpiresAt.IsZero() {
			return nil
		}
	}
	return fault.New(fault.Conflict, "This is the last admin key that does not expire; make another one first.").WithCode("last_admin")
}

// noteUses writes down now and then which keys were used.
func (m *Manager) noteUses(ctx context.Context) {
	tick := time.NewTicker(useEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.writeUses(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), 2*time.Second, errStopped)
			defer cancel()
			m.writeUses(last)
			return
		}
	}
}

// writeUses writes down which keys were used. What cannot be written is lost:
// it is only about when.
func (m *Manager) writeUses(ctx context.Context) {
	uses := m.keys.uses()
	if len(uses) == 0 {
		return
	}
	err := m.Store.Update(ctx, func(tx store.Tx) error {
		for id, at := range uses {
			if err := tx.Keys().Used(ctx, id, at); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		m.Logger.Warn("could not write down which keys were used", "error", err)
	}
}
