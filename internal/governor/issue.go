package governor

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"log/slog"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// Asked is what somebody wants a paper for.
type Asked struct {
	Contract string // "" is the default one, or the parent's
	ParentID string // "" is nobody: a root
	// Depth is what the caller believes. A root's must be 0; a child's is taken
	// from its parent, whatever is said here.
	Depth     int
	State     json.RawMessage
	Resources *manifest.Resources // nil is the parent's, or the contract's
}

// Issue gives out a signed manifest, if the law allows the worker.
func (g *Governor) Issue(ctx context.Context, a Asked) (m manifest.Manifest, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return m, err
	}
	if err := g.demand(ctx); err != nil {
		return m, err
	}
	if a.ParentID != "" && !manifest.ValidID(a.ParentID) {
		a.ParentID = nobody
	}
	state, err := manifest.CanonicalState(a.State)
	if err != nil {
		return m, err
	}
	if a.Resources != nil {
		if err := g.offered(*a.Resources); err != nil {
			return m, err
		}
	}
	err = g.decide(ctx, "issue a manifest", cmp.Or(a.ParentID, a.Contract, manifest.DefaultContract), func(tx store.Tx) error {
		w, err := g.draft(ctx, tx, a, c.ID, c.SeesAll())
		if err != nil {
			return err
		}
		w.Manifest.State = state
		if err := g.offered(w.Manifest.Resources); err != nil {
			return err
		}
		if err := g.number(ctx, tx, &w); err != nil {
			return err
		}
		m = w.Manifest
		if err := g.audit(ctx, tx, entry{action: "manifest_issued", target: w.ID(), outcome: outcomeDone, meta: paperMeta(&w)}); err != nil {
			return err
		}
		return tx.Events().Append(ctx, happened(&w, event.FleetIssued, policy.ActorOf(ctx), g.now(), map[string]any{"parent_id": m.ParentID, "depth": m.Depth, "contract": w.Terms.Contract}))
	})
	return m, err
}

// nobody stands for a parent whose id cannot be one, and for a worker without id.
const nobody = "none"

func (g *Governor) demand(ctx context.Context) error {
	if g.Demand == nil {
		return nil
	}
	return g.Demand(ctx)
}

// draft is a paper without name and signature, after all that the law asks.
func (g *Governor) draft(ctx context.Context, tx store.Tx, a Asked, owner string, all bool) (w manifest.Worker, err error) {
	inherits := manifest.Resources{}
	if a.ParentID != "" {
		p, err := tx.Fleet().Get(ctx, a.ParentID)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return w, err
		}
		if err == nil && (all || p.Terms.Owner == owner) {
			// A child belongs where its parent does.
			owner, inherits = p.Terms.Owner, p.Manifest.Resources
			if a.Contract == "" {
				a.Contract = p.Terms.Contract
			}
		}
	}
	c, err := contract(ctx, tx, a.Contract)
	if err != nil {
		return w, err
	}
	parent, err := g.spawning(ctx, tx, &c, owner, a.ParentID)
	if err != nil {
		return w, err
	}
	w = manifest.Worker{Manifest: manifest.Manifest{ParentID: a.ParentID, IssuedAt: g.now(), Resources: c.Resources}, State: manifest.Issued}
	switch {
	case parent != nil:
		w.Manifest.Depth, w.Manifest.Resources = parent.Manifest.Depth+1, inherits
	case a.Depth != 0:
		return w, deny(DenyDepthSpoof, "A worker without a parent has depth 0, not %d.", a.Depth)
	}
	if a.Resources != nil {
		w.Manifest.Resources = *a.Resources
	}
	w.UpdatedAt = w.Manifest.IssuedAt
	w.Terms = manifest.Terms{Contract: c.Name, Owner: owner, Until: w.Manifest.IssuedAt.Add(g.Validity)}
	n, err := tx.Fleet().Count(ctx, c.Name, manifest.Issued)
	if err == nil && n >= maxPapers {
		err = fault.New(fault.Exhausted, "The contract %s has %d manifests that wait to be used; use some, or let them expire.", c.Name, n).WithCode("too_many_manifests").Retry(g.Validity)
	}
	return w, err
}

// number gives a paper its id, signs it and stores it.
func (g *Governor) number(ctx context.Context, tx store.Tx, w *manifest.Worker) error {
	const tries = 8 // of ids that nobody has; one is nearly always enough
	for range tries {
		w.Manifest.WorkerID = manifest.NewID()
		_, err := tx.Fleet().Get(ctx, w.ID())
		if err == nil {
			continue
		}
		if !fault.Is(err, fault.NotFound) {
			return err
		}
		g.Keys.Signer().Sign(&w.Manifest, w.Terms)
		return tx.Fleet().Add(ctx, w)
	}
	return fault.New(fault.Exhausted, "no free id was found for a worker; try again").WithCode("no_free_id")
}

// offered refuses what this server cannot give or hold anybody to.
func (g *Governor) offered(r manifest.Resources) error {
	if err := r.Check(); err != nil {
		return err
	}
	if r.Network.AllowExternal {
		return fault.Field("resources.network_policy.allow_external", "is not offered yet: a sandbox has no network here; say false").WithCode("network_unavailable")
	}
	return live.CheckLimits(limits(r), g.Most)
}

func limits(r manifest.Resources) sandbox.Limits {
	return sandbox.Limits{MilliCPU: r.MilliCPU(), Memory: r.Memory()}
}

// admit checks a paper that somebody shows, and registers the worker that it is
// for. Nothing has happened before it, and nothing does if it refuses.
func (g *Governor) admit(ctx context.Context, m manifest.Manifest) (w manifest.Worker, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return w, err
	}
	if err := g.demand(ctx); err != nil {
		return w, err
	}
	if m.State, err = manifest.CanonicalState(m.State); err != nil {
		return w, err
	}
	// What the paper claims to be is on the record, also where it cannot be.
	err = g.decide(ctx, "register a worker", cmp.Or(clip(m.WorkerID), nobody), func(tx store.Tx) error {
		w, err = g.genuine(ctx, tx, &m, c.ID, c.SeesAll())
		if err != nil {
			return err
		}
		return g.register(ctx, tx, &w)
	})
	if err == nil {
		g.Logger.LogAttrs(ctx, slog.LevelInfo, "worker_registered", slog.String("worker_id", m.WorkerID), slog.String("parent_id", m.ParentID), slog.Int("depth", m.Depth), slog.String("contract", w.Terms.Contract))
	}
	return w, err
}

var errForged = deny(RejectSignature, "The manifest is not one that was issued here, or something in it was changed.")

// genuine returns the stored paper that is the same as the one shown. One that
// was issued elsewhere, to somebody else, under a key that was revoked, or
// whose fields or signature differ, is refused in the same words: whoever shows
// it learns nothing.
func (g *Governor) genuine(ctx context.Context, tx store.Tx, m *manifest.Manifest, owner string, all bool) (manifest.Worker, error) {
	if !manifest.ValidID(m.WorkerID) {
		return manifest.Worker{}, errForged
	}
	w, err := tx.Fleet().Get(ctx, m.WorkerID)
	if fault.Is(err, fault.NotFound) || err == nil && !all && w.Terms.Owner != owner {
		return w, errForged
	}
	if err != nil {
		return w, err
	}
	good, err := g.signed(ctx, tx, m, w.Terms)
	if err != nil {
		return w, err
	}
	same := subtle.ConstantTimeCompare([]byte(m.Signature), []byte(w.Manifest.Signature)) == 1 && m.IssuedAt.Equal(w.Manifest.IssuedAt)
	if !good || !same {
		return w, errForged
	}
	if w.State != manifest.Issued {
		return w, deny(RejectReplay, "The manifest of %s was used before; ask for another.", w.ID())
	}
	if !w.Terms.Until.After(g.now()) {
		return w, deny(RejectExpired, "The manifest of %s could be used until %s; ask for another.", w.ID(), w.Terms.Until.Format("15:04:05 MST"))
	}
	return w, nil
}

// signed reports whether a paper carries a good signature under terms.
func (g *Governor) signed(ctx context.Context, tx store.Tx, m *manifest.Manifest, t manifest.Terms) (bool, error) {
	id, ok := manifest.KeyOf(m.Signature)
	if !ok {
		return g.Keys.Signer().VerifySecret(m), nil
	}
	k, err := tx.Contracts().Key(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil && k.Verify(m, t), err
}

// register lets a worker in whose paper is good: all that was asked when it was
// issued is asked again.
func (g *Governor) register(ctx context.Context, tx store.Tx, w *manifest.Worker) error {
	c, err := contract(ctx, tx, w.Terms.Contract)
	if err != nil {
		return err
	}
	if w.Manifest.Root() && w.Manifest.Depth != 0 {
		return deny(RejectRootDepth, "A worker without a parent has depth 0, not %d.", w.Manifest.Depth)
	}
	if w.Manifest.Depth > c.MaxDepth {
		return deny(RejectDepthExceeded, "The worker would be %d deep, and the contract %s allows %d.", w.Manifest.Depth, c.Name, c.MaxDepth)
	}
	active, err := tx.Fleet().Count(ctx, c.Name, manifest.Launching, manifest.Running, manifest.Ending)
	if err != nil {
		return err
	}
	if name := c.Evaluate(&w.Manifest, active); name != "" {
		return deny(DenyStopCondition, "The stop condition %s of the contract %s holds.", name, c.Name)
	}
	parent, err := g.spawning(ctx, tx, &c, w.Terms.Owner, w.Manifest.ParentID)
	if err != nil {
		return err
	}
	if parent != nil && parent.Manifest.Depth+1 != w.Manifest.Depth {
		return deny(DenyDepthSpoof, "The worker %s is %d deep, so its child cannot be %d deep.", parent.ID(), parent.Manifest.Depth, w.Manifest.Depth)
	}
	if err := g.offered(w.Manifest.Resources); err != nil {
		return err // the server offers less than when it was issued
	}
	return g.enter(ctx, tx, w, parent, &c)
}

// enter writes a registration down.
func (g *Governor) enter(ctx context.Context, tx store.Tx, w, parent *manifest.Worker, c *manifest.Contract) (err error) {
	now := g.now()
	if w.State, err = w.State.To(manifest.Launching); err != nil {
		return err
	}
	w.RegisteredAt, w.HeartbeatAt, w.UpdatedAt = now, now, now
	if c.Expiration > 0 {
		w.ExpiresAt = now.Add(c.Expiration)
	}
	if err := tx.Fleet().Put(ctx, w); err != nil {
		return err
	}
	if parent != nil {
		parent.SpawnedAt, parent.UpdatedAt = now, now
		if err := tx.Fleet().Put(ctx, parent); err != nil {
			return err
		}
	}
	if err := g.audit(ctx, tx, entry{action: "worker_registered", target: w.ID(), outcome: outcomeDone, meta: paperMeta(w)}); err != nil {
		return err
	}
	return tx.Events().Append(ctx, happened(w, event.FleetRegistered, policy.ActorOf(ctx), now, map[string]any{"contract": c.Name, "parent_id": w.Manifest.ParentID, "depth": w.Manifest.Depth}))
}
