package governor

import (
	"context"
	"log/slog"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// The codes of what is denied.
const (
	DenyKillSwitch      = "deny_kill_switch"
	DenyQuarantined     = "deny_quarantined"
	DenyQuota           = "deny_quota"
	DenyUnknownParent   = "deny_unknown_parent"
	DenyCooldown        = "deny_cooldown"
	DenyDepth           = "deny_depth"
	DenyDepthSpoof      = "deny_depth_spoof"
	DenyStopCondition   = "deny_stop_condition"
	DenyExpired         = "deny_expired"
	RejectSignature     = "reject_manifest_signature"
	RejectExpired       = "reject_manifest_expired"
	RejectReplay        = "reject_manifest_replay"
	RejectRootDepth     = "reject_root_depth"
	RejectDepthExceeded = "reject_depth_exceeded"
)

// Codes lists every code with which something is denied.
func Codes() []string {
	return []string{
		DenyKillSwitch, DenyQuarantined, DenyQuota, DenyUnknownParent, DenyCooldown, DenyDepth, DenyDepthSpoof, DenyStopCondition, DenyExpired,
		RejectSignature, RejectExpired, RejectReplay, RejectRootDepth, RejectDepthExceeded,
	}
}

// deny is a decision against somebody. It is an answer of the law and no
// failure: what is written beside it stays.
func deny(code, format string, args ...any) *fault.Error {
	return fault.New(fault.Denied, format, args...).WithCode(code)
}

// decide runs one decision in one transaction. What fn denies is written down
// in that transaction, and then returned.
func (g *Governor) decide(ctx context.Context, what, target string, fn func(tx store.Tx) error) error {
	var denied *fault.Error
	err := g.Store.Update(ctx, func(tx store.Tx) error {
		denied = nil
		err := fn(tx)
		if d, ok := err.(*fault.Error); ok && d.Kind == fault.Denied { //nolint:errorlint // only what deny made, never what was wrapped
			denied = d
			return g.audit(ctx, tx, entry{action: d.Code, target: target, outcome: outcomeDenied, message: d.Message, about: what})
		}
		return err
	})
	if err != nil {
		return err
	}
	if denied != nil {
		g.Logger.LogAttrs(ctx, slog.LevelWarn, denied.Code, slog.String("worker_id", target), slog.String("decision", what), slog.String("reason", denied.Message), slog.String("actor", policy.ActorOf(ctx)))
		return denied
	}
	return nil
}

// spawning checks whether a worker may be started under a contract, in the
// order of the law. It returns the parent, if there is to be one.
func (g *Governor) spawning(ctx context.Context, tx store.Tx, c *manifest.Contract, owner, parentID string) (parent *manifest.Worker, err error) {
	subject := Subject{Contract: c.Name, ProjectID: c.ProjectID, Owner: owner}
	if parentID != "" {
		p, err := tx.Fleet().Get(ctx, parentID)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		if err == nil && p.Terms.Owner == owner && p.Terms.Contract == c.Name {
			parent = &p
		}
		if subject.Ancestors, err = ancestors(ctx, tx, parent); err != nil {
			return nil, err
		}
	}
	if err := g.demandGoing(ctx, tx, subject); err != nil {
		return nil, err
	}
	if parent != nil && parent.Quarantined() {
		return nil, deny(DenyQuarantined, "The worker %s is under quarantine and may not have children.", parentID)
	}
	n, err := tx.Fleet().Count(ctx, c.Name, manifest.Launching, manifest.Running, manifest.Ending)
	if err != nil {
		return nil, err
	}
	if n >= c.MaxReplicas {
		return nil, deny(DenyQuota, "The contract %s has %d workers, and allows %d.", c.Name, n, c.MaxReplicas)
	}
	if parentID == "" {
		return nil, nil //nolint:nilnil // a root has none
	}
	return parent, g.parentMay(c, parent, parentID)
}

// clockSlack is how far the clocks of managers may be apart.
const clockSlack = time.Minute

// parentMay checks whether a parent may have another child now.
func (g *Governor) parentMay(c *manifest.Contract, parent *manifest.Worker, id string) error {
	now := g.now()
	if parent == nil || parent.State != manifest.Running && parent.State != manifest.Launching {
		return deny(DenyUnknownParent, "No worker with the id %.40q is there to be the parent.", id)
	}
	if !parent.ExpiresAt.IsZero() && !parent.ExpiresAt.After(now) {
		return deny(DenyUnknownParent, "The time of the worker %s is over.", id)
	}
	// A time that lies far ahead is of a clock that was set back since, and nobody
	// waits for as long as that; managers whose clocks differ do.
	back := parent.SpawnedAt.Sub(now) > max(c.Cooldown, clockSlack)
	if wait := parent.SpawnedAt.Add(c.Cooldown).Sub(now); !parent.SpawnedAt.IsZero() && wait > 0 && !back {
		return deny(DenyCooldown, "The worker %s had a child just now, and may have another in %s.", id, wait).Retry(wait)
	}
	if parent.Manifest.Depth+1 > c.MaxDepth {
		return deny(DenyDepth, "The worker %s is %d deep, and the contract %s allows %d.", id, parent.Manifest.Depth, c.Name, c.MaxDepth)
	}
	return nil
}

// demandGoing refuses what a switch has stopped.
func (g *Governor) demandGoing(ctx context.Context, tx store.Tx, s Subject) error {
	if g.Stopped == nil {
		return nil
	}
	reason, stopped, err := g.Stopped(ctx, tx, s)
	if err != nil {
		return err
	}
	if stopped {
		return deny(DenyKillSwitch, "The kill switch is engaged: %s", reason)
	}
	return nil
}

// ancestors lists a worker and those above it.
func ancestors(ctx context.Context, tx store.Tx, w *manifest.Worker) (ids []string, err error) {
	for w != nil && len(ids) <= manifest.MaxDepth {
		ids = append(ids, w.ID())
		if w.Manifest.Root() {
			break
		}
		p, err := tx.Fleet().Get(ctx, w.Manifest.ParentID)
		if fault.Is(err, fault.NotFound) {
			break
		}
		if err != nil {
			return nil, err
		}
		w = &p
	}
	return ids, nil
}

// contract returns a contract; the default one is there also when nobody made
// it.
func contract(ctx context.Context, tx store.Tx, name string) (manifest.Contract, error) {
	if name == "" {
		name = manifest.DefaultContract
	}
	c, err := tx.Contracts().Get(ctx, name)
	if fault.Is(err, fault.NotFound) && name == manifest.DefaultContract {
		return manifest.Default(), nil
	}
	if fault.Is(err, fault.NotFound) {
		f := fault.Field("contract", "there is no contract %.70q", name)
		return c, f.WithCode("unknown_contract")
	}
	return c, err
}
