package governor

import (
	"context"
	"encoding/json"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// Worker returns a worker of the fleet, also when it has ended.
func (g *Governor) Worker(ctx context.Context, id string) (w manifest.Worker, err error) {
	err = g.Store.View(ctx, func(tx store.Tx) (err error) {
		w, err = visible(ctx, tx, id)
		return err
	})
	return w, err
}

// Workers lists workers of the fleet, newest first.
func (g *Governor) Workers(ctx context.Context, f store.FleetFilter) (list []manifest.Worker, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return nil, err
	}
	if !c.SeesAll() {
		f.Owner = c.ID
	}
	err = g.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Fleet().List(ctx, f)
		return err
	})
	return list, err
}

// SignatureValid reports, for each worker, whether its paper still carries a
// good signature: a revoked key shows here.
func (g *Governor) SignatureValid(ctx context.Context, list []manifest.Worker) (valid []bool, err error) {
	var keys []manifest.PublicKey
	err = g.Store.View(ctx, func(tx store.Tx) (err error) {
		keys, err = tx.Contracts().Keys(ctx)
		return err
	})
	byID := make(map[string]manifest.PublicKey, len(keys))
	for _, k := range keys {
		byID[k.ID] = k
	}
	valid = make([]bool, len(list))
	for i := range list {
		m := &list[i].Manifest
		// A database may have written <, > and & in another way.
		if state, err := manifest.CanonicalState(m.State); err == nil {
			m.State = state
		}
		if id, ok := manifest.KeyOf(m.Signature); ok {
			valid[i] = byID[id].Verify(m, list[i].Terms)
		} else {
			valid[i] = g.Keys.Signer().VerifySecret(m)
		}
	}
	return valid, err
}

// Lineage is who started whom.
func (g *Governor) Lineage(ctx context.Context, contract string) (manifest.Lineage, error) {
	list, err := g.Workers(ctx, store.FleetFilter{
		Contract: contract, States: []manifest.State{manifest.Launching, manifest.Running, manifest.Ending, manifest.Ended}, Limit: MaxHistory,
	})
	if err != nil {
		return manifest.Lineage{}, err
	}
	return manifest.Trace(list), nil
}

// Utilisation is how much of a contract is used.
type Utilisation struct {
	manifest.Contract
	Active, Issued int
}

// Contracts lists the contracts with how much of each is used.
func (g *Governor) Contracts(ctx context.Context) (list []Utilisation, err error) {
	err = g.Store.View(ctx, func(tx store.Tx) error {
		list = nil
		all, err := tx.Contracts().List(ctx)
		if err != nil {
			return err
		}
		if _, err := tx.Contracts().Get(ctx, manifest.DefaultContract); fault.Is(err, fault.NotFound) {
			all = append([]manifest.Contract{manifest.Default()}, all...)
		}
		for _, c := range all {
			u := Utilisation{Contract: c}
			if u.Active, err = tx.Fleet().Count(ctx, c.Name, manifest.Launching, manifest.Running, manifest.Ending); err != nil {
				return err
			}
			if u.Issued, err = tx.Fleet().Count(ctx, c.Name, manifest.Issued); err != nil {
				return err
			}
			list = append(list, u)
		}
		return nil
	})
	return list, err
}

// PutContract makes a contract, or changes it. Workers that are there stay, also
// where the new one allows fewer; what is decided from now on is decided by it.
func (g *Governor) PutContract(ctx context.Context, c manifest.Contract) (manifest.Contract, error) {
	if err := c.Check(); err != nil {
		return c, err
	}
	if err := g.offered(c.Resources); err != nil {
		return c, err
	}
	err := g.Store.Update(ctx, func(tx store.Tx) error {
		now := g.now()
		old, err := tx.Contracts().Get(ctx, c.Name)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		c.Version, c.CreatedAt, c.UpdatedAt = old.Version+1, now, now
		if err == nil {
			c.CreatedAt = old.CreatedAt
			if err := demandProject(ctx, tx, &old, &c); err != nil {
				return err
			}
		}
		if err := tx.Contracts().Put(ctx, &c); err != nil {
			return err
		}
		before, _ := json.Marshal(old) // plain data
		after, _ := json.Marshal(c)
		if err := g.audit(ctx, tx, entry{action: "contract_put", target: c.Name, outcome: outcomeDone, before: before, after: after}); err != nil {
			return err
		}
		return tx.Events().Append(ctx, &event.Event{Type: event.FleetContract, Version: 1, Entity: "contract", EntityID: c.Name, Actor: policy.ActorOf(ctx), At: now})
	})
	return c, err
}

// demandProject refuses to carry a contract to another project while it has
// workers: their sandboxes bear the project's label, by which a kill switch finds
// them.
func demandProject(ctx context.Context, tx store.Tx, old, c *manifest.Contract) error {
	if old.ProjectID == c.ProjectID {
		return nil
	}
	n, err := tx.Fleet().Count(ctx, c.Name, manifest.Launching, manifest.Running, manifest.Ending)
	if err == nil && n > 0 {
		err = fault.New(fault.Conflict, "The contract %s has %d workers of the project %d; end them before it is for another, or make a new contract.", c.Name, n, old.ProjectID).WithCode("contract_in_use")
	}
	return err
}

// ManifestKeys lists the keys that papers are checked against; signing is the
// one that signs here.
func (g *Governor) ManifestKeys(ctx context.Context) (keys []manifest.PublicKey, signing string, err error) {
	err = g.Store.View(ctx, func(tx store.Tx) (err error) {
		keys, err = tx.Contracts().Keys(ctx)
		return err
	})
	return keys, g.Keys.Signer().Key.ID, err
}

// RotateKey makes a new key, which signs from now on. Papers under earlier keys
// stay good until those are revoked.
func (g *Governor) RotateKey(ctx context.Context) (k manifest.PublicKey, err error) {
	key, err := g.Keys.Rotate()
	if err != nil {
		return k, err
	}
	k = key.Public(g.now())
	err = g.Store.Update(ctx, func(tx store.Tx) error {
		if err := tx.Contracts().AddKey(ctx, k); err != nil {
			return err
		}
		if err := g.audit(ctx, tx, entry{action: "manifest_key_made", target: k.ID, outcome: outcomeDone}); err != nil {
			return err
		}
		return tx.Events().Append(ctx, &event.Event{Type: event.FleetKey, Version: 1, Entity: "manifest_key", EntityID: k.ID, Actor: policy.ActorOf(ctx), At: k.CreatedAt})
	})
	return k, err
}

// RevokeKey makes all papers under a key worthless. The one that signs is
// replaced first.
func (g *Governor) RevokeKey(ctx context.Context, id string) error {
	if g.Keys.Signer().Key.ID == id {
		if _, err := g.RotateKey(ctx); err != nil {
			return err
		}
	}
	return g.Store.Update(ctx, func(tx store.Tx) error {
		now := g.now()
		if err := tx.Contracts().RevokeKey(ctx, id, now); err != nil {
			return err
		}
		if err := g.audit(ctx, tx, entry{action: "manifest_key_revoked", target: id, outcome: outcomeDone}); err != nil {
			return err
		}
		return tx.Events().Append(ctx, &event.Event{Type: event.FleetKey, Version: 1, Entity: "manifest_key", EntityID: id, Actor: policy.ActorOf(ctx), At: now})
	})
}
