package manager

import (
	"context"
	"sync"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// errNoCaller means that a door let a request through without saying whose it is.
var errNoCaller = fault.New(fault.Unauthenticated, "no caller could be established")

// keyring remembers keys that were looked up, so that a request costs no query.
type keyring struct {
	mu    sync.Mutex
	known map[[32]byte]policy.Caller
}

func newKeyring() *keyring { return &keyring{known: map[[32]byte]policy.Caller{}} }

// Authenticate returns the caller that a secret stands for.
func (m *Manager) Authenticate(ctx context.Context, secret string) (policy.Caller, error) {
	hash := policy.HashKey(secret)
	m.keys.mu.Lock()
	c, ok := m.keys.known[hash]
	m.keys.mu.Unlock()
	if ok {
		return c, nil
	}
	var k policy.Key
	err := m.Store.View(ctx, func(tx store.Tx) (err error) {
		k, err = tx.Keys().ByHash(ctx, hash)
		return err
	})
	if fault.Is(err, fault.NotFound) || err == nil && !k.Good() {
		return policy.Caller{}, fault.New(fault.Unauthenticated, "the key is not known here, or was revoked").WithCode("bad_key")
	}
	if err != nil {
		return policy.Caller{}, err
	}
	m.keys.mu.Lock()
	defer m.keys.mu.Unlock()
	m.keys.known[hash] = k.Caller()
	return k.Caller(), nil
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
		for _, k := range have {
			exists[k.Kind] = exists[k.Kind] || k.Good()
		}
		for _, kind := range kinds {
			if exists[kind] {
				continue
			}
			k, secret := policy.NewKey(kind, "made at first start", m.Now())
			if err := show(k, secret); err != nil {
				return err
			}
			if err := tx.Keys().Add(ctx, k); err != nil {
				return err
			}
			e := event.Event{Type: event.KeyCreated, Version: 1, Entity: "key", EntityID: k.ID, Actor: policy.System().ID, At: m.Now()}
			if err := tx.Events().Append(ctx, &e); err != nil {
				return err
			}
		}
		return nil
	})
}
