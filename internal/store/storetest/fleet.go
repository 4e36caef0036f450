package storetest

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

func testContracts(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	c := manifest.Contract{
		Name: "name " + odd, ProjectID: 1 << 40, Template: odd, MaxDepth: 3, MaxReplicas: 4, Cooldown: time.Second, Expiration: time.Hour,
		Stop: manifest.Conditions(), Resources: manifest.Resources{CPULimit: 0.25, MemoryLimitMB: 128, Network: manifest.DefaultNetwork()},
		Version: 7, CreatedAt: moment(1), UpdatedAt: moment(2),
	}
	get := func(name string) func(tx store.Tx) (manifest.Contract, error) {
		return func(tx store.Tx) (manifest.Contract, error) { return tx.Contracts().Get(ctx, name) }
	}
	wantKind(t, "one that is not there", viewErr(t, s, get(c.Name)), fault.NotFound)
	update(t, s, func(tx store.Tx) error { return tx.Contracts().Put(ctx, &c) })
	equal(t, "the contract", view(t, s, get(c.Name)), c)
	c.MaxReplicas, c.Version = 9, 8
	update(t, s, func(tx store.Tx) error {
		if err := tx.Contracts().Put(ctx, &c); err != nil {
			return err
		}
		return tx.Contracts().Put(ctx, &manifest.Contract{Name: "a"})
	})
	list := view(t, s, func(tx store.Tx) ([]manifest.Contract, error) { return tx.Contracts().List(ctx) })
	equal(t, "all", fmt.Sprint(len(list), list[0].Name, list[1].MaxReplicas), "2a9")
}

func testManifestKeys(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	first, second := manifest.PublicKey{ID: "b", Public: make(ed25519.PublicKey, 32), CreatedAt: moment(1)}, manifest.PublicKey{ID: "a", Public: ed25519.PublicKey("x"), CreatedAt: moment(2)}
	update(t, s, func(tx store.Tx) error {
		for _, k := range []manifest.PublicKey{second, first, {ID: "b", CreatedAt: moment(9)}} {
			if err := tx.Contracts().AddKey(ctx, k); err != nil {
				return err
			}
		}
		return nil
	})
	keys := func(tx store.Tx) ([]manifest.PublicKey, error) { return tx.Contracts().Keys(ctx) }
	equal(t, "the keys", view(t, s, keys), []manifest.PublicKey{first, second})
	for _, at := range []int{3, 4} {
		update(t, s, func(tx store.Tx) error { return tx.Contracts().RevokeKey(ctx, "b", moment(at)) })
	}
	first.RevokedAt = moment(3)
	equal(t, "a revoked key", view(t, s, func(tx store.Tx) (manifest.PublicKey, error) { return tx.Contracts().Key(ctx, "b") }), first)
	wantKind(t, "revoke none", s.Update(ctx, func(tx store.Tx) error { return tx.Contracts().RevokeKey(ctx, "c", moment(1)) }), fault.NotFound)
}

func newFleetWorker(id, contract, parent string, issued int) *manifest.Worker {
	return &manifest.Worker{
		Manifest: manifest.Manifest{
			WorkerID: id, ParentID: parent, IssuedAt: moment(issued), State: json.RawMessage(`{}`),
			Resources: manifest.Resources{CPULimit: 0.5, MemoryLimitMB: 64},
		},
		Terms: manifest.Terms{Contract: contract, Owner: "o", Until: moment(50)}, State: manifest.Issued, UpdatedAt: moment(issued),
	}
}

func testFleet(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	w := newFleetWorker("id "+odd, "contract "+odd, "parent "+odd, 1)
	w.Terms.Owner, w.Manifest.Depth, w.Manifest.Signature = "owner "+odd, 1<<40, "signature "+odd
	w.Manifest.State = json.RawMessage(`{"a":1e400,"b":"` + "日本" + `"}`)
	w.Manifest.Resources.Network = manifest.NetworkPolicy{AllowController: true, AllowExternal: true}
	get := func(tx store.Tx) (manifest.Worker, error) { return tx.Fleet().Get(ctx, w.ID()) }
	wantKind(t, "one that is not there", viewErr(t, s, get), fault.NotFound)
	add := func() error { return s.Update(ctx, func(tx store.Tx) error { return tx.Fleet().Add(ctx, w) }) }
	check(t, add())
	equal(t, "the worker", view(t, s, get), *w)
	wantKind(t, "an id twice", add(), fault.Conflict)
	at := moment(8)
	w.State, w.Reason, w.Sandbox = manifest.Ended, odd, "box"
	w.RegisteredAt, w.StartedAt, w.HeartbeatAt, w.SpawnedAt, w.ExpiresAt, w.EndedAt, w.UpdatedAt = moment(2), moment(3), moment(4), moment(5), moment(6), moment(7), moment(8)
	w.Quarantine = &manifest.Quarantine{
		Reason: odd, Source: odd, Severity: manifest.High, At: moment(1), Status: manifest.QuarantineOn, ResolvedAt: &at, Resolution: odd,
		Notes: []manifest.Note{{At: moment(2), By: odd, Text: odd}}, Restrictions: manifest.Restrictions{ReplicationBlocked: true, TaskExecutionPaused: true},
		Bundle: &manifest.Bundle{At: moment(1), Record: "r", Files: "f", Snapshot: "s", Missing: odd},
	}
	w.SuspendedAt, w.RevivedAt, w.Bundle = moment(9), moment(10), &manifest.Bundle{At: moment(2), Record: "r2"}
	update(t, s, func(tx store.Tx) error { return tx.Fleet().Put(ctx, w) })
	equal(t, "after its end", view(t, s, get), *w)
}

func testFleetLists(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	all := map[string]*manifest.Worker{}
	for i, id := range []string{"issued", "launching", "running", "fallen", "ending", "ended", "older"} {
		w := newFleetWorker(id, "c", "", i+1)
		all[id] = w
		if id != "issued" {
			w.State = manifest.State(id)
		}
	}
	all["launching"].Manifest.ParentID, all["launching"].ExpiresAt = "running", moment(30)
	all["running"].HeartbeatAt, all["running"].ExpiresAt, all["running"].Sandbox = moment(20), moment(40), "there"
	all["running"].Quarantine = &manifest.Quarantine{Status: manifest.QuarantineOn, Notes: []manifest.Note{}, Bundle: &manifest.Bundle{Record: "r"}}
	all["fallen"].State, all["fallen"].HeartbeatAt, all["fallen"].Sandbox, all["fallen"].Terms.Contract = manifest.Running, moment(10), "gone", "d"
	all["ended"].EndedAt, all["older"].State, all["older"].EndedAt = moment(9), manifest.Ended, moment(8)
	there, gone := newSandbox(t, "o", ""), newSandbox(t, "o", "")
	there.ID, gone.ID, gone.State, gone.EndedAt = "there", "gone", sandbox.StateFailed, moment(1)
	update(t, s, func(tx store.Tx) error {
		for _, w := range all {
			if err := tx.Fleet().Add(ctx, w); err != nil {
				return err
			}
		}
		if err := tx.Sandboxes().Add(ctx, there); err != nil {
			return err
		}
		return tx.Sandboxes().Add(ctx, gone)
	})
	ids := func(what, want string, ask func(tx store.Tx) ([]manifest.Worker, error)) {
		t.Helper()
		got := ""
		for _, w := range view(t, s, ask) {
			got += w.ID() + " "
		}
		equal(t, what, got, want)
	}
	list := func(f store.FleetFilter) func(tx store.Tx) ([]manifest.Worker, error) {
		return func(tx store.Tx) ([]manifest.Worker, error) { return tx.Fleet().List(ctx, f) }
	}
	ids("all", "older ended ending fallen running launching issued ", list(store.FleetFilter{}))
	ids("of another", "", list(store.FleetFilter{Owner: "p"}))
	ids("of a contract", "fallen ", list(store.FleetFilter{Owner: "o", Contract: "d"}))
	ids("children", "launching ", list(store.FleetFilter{Parent: "running"}))
	ids("under quarantine", "running ", list(store.FleetFilter{Quarantined: true}))
	ids("with something put aside", "running ", list(store.FleetFilter{Bundled: true}))
	ids("in states", "ending launching ", list(store.FleetFilter{States: []manifest.State{manifest.Launching, manifest.Ending}}))
	ids("a page", "running ", list(store.FleetFilter{Before: moment(4), Limit: 1}))
	ids("stale", "fallen ", func(tx store.Tx) ([]manifest.Worker, error) { return tx.Fleet().Stale(ctx, moment(20), 10) })
	ids("due", "launching running ", func(tx store.Tx) ([]manifest.Worker, error) { return tx.Fleet().Due(ctx, moment(40), 10) })
	ids("papers too", "launching running issued ", func(tx store.Tx) ([]manifest.Worker, error) { return tx.Fleet().Due(ctx, moment(50), 10) })
	ids("fallen", "fallen ", func(tx store.Tx) ([]manifest.Worker, error) { return tx.Fleet().Fallen(ctx, 10) })
	ids("on their way", "launching ", func(tx store.Tx) ([]manifest.Worker, error) { return tx.Fleet().Passing(ctx, moment(5), 10) })
	count := view(t, s, func(tx store.Tx) (int, error) {
		return tx.Fleet().Count(ctx, "c", manifest.Launching, manifest.Running, manifest.Ending)
	})
	equal(t, "the count", count, 3)
	forget := func(before, most, want int) {
		t.Helper()
		update(t, s, func(tx store.Tx) error {
			n, err := tx.Fleet().Forget(ctx, moment(before), most, 10)
			equal(t, "forgotten", n, int64(want))
			return err
		})
	}
	forget(1, 2, 0)
	forget(9, 2, 1)
	forget(1, 0, 1)
	ids("left", "ending fallen running launching issued ", list(store.FleetFilter{}))
}
