package storetest

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

func testWorkers(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	list := func() []job.Worker {
		return view(t, s, func(tx store.Tx) ([]job.Worker, error) { return tx.Workers().List(ctx) })
	}
	full := job.Worker{
		ID: "b " + odd, Identity: "i " + odd, Incarnation: "n", Role: "r", Models: []string{"m", odd}, Drivers: []string{"fake"},
		Slots: 4, Version: "v", Connected: true, RegisteredAt: moment(1), SeenAt: moment(2),
		Session: "s " + odd, Manager: "m " + odd, Paused: "p " + odd,
		Proofs: []job.Driver{{Name: "fake", Version: "v", Isolation: "i " + odd, Degraded: "d", Tried: 3, Stopped: 2, Exempt: "e", ProbedAt: moment(3)}},
	}
	zero := job.Worker{ID: "a", Drivers: []string{}}
	equal(t, "no workers", len(list()), 0)
	update(t, s, func(tx store.Tx) error {
		return errors.Join(tx.Workers().Put(ctx, full), tx.Workers().Put(ctx, zero))
	})
	equal(t, "workers", list(), []job.Worker{zero, full})
	replaced := job.Worker{ID: full.ID, Slots: 1}
	update(t, s, func(tx store.Tx) error { return tx.Workers().Put(ctx, replaced) })
	equal(t, "workers after one was put again", list(), []job.Worker{zero, replaced})
	equal(t, "one worker", view(t, s, func(tx store.Tx) (job.Worker, error) { return tx.Workers().Get(ctx, "a") }), zero)
	for session, want := range map[string]bool{full.Session: false, "": false, "other": false, "new": true} {
		update(t, s, func(tx store.Tx) error {
			return tx.Workers().Put(ctx, job.Worker{ID: full.ID, Slots: 1, Session: "new"})
		})
		err := viewErr(t, s, func(tx store.Tx) (job.Worker, error) { return tx.Workers().BySession(ctx, session) })
		if want {
			check(t, err)
		} else {
			wantKind(t, "get a worker by the session "+session, err, fault.NotFound)
		}
	}
	wantKind(t, "get a missing worker", viewErr(t, s, func(tx store.Tx) (job.Worker, error) { return tx.Workers().Get(ctx, "c") }), fault.NotFound)
}

func testRecords(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	get := func(attempt int) evidence.Record {
		return view(t, s, func(tx store.Tx) (evidence.Record, error) { return tx.Records().Get(ctx, "j", attempt) })
	}
	artifacts := func(attempt int) []evidence.Artifact {
		return view(t, s, func(tx store.Tx) ([]evidence.Artifact, error) { return tx.Records().Artifacts(ctx, "j", attempt) })
	}
	add := func(attempt int, list ...evidence.Artifact) error {
		return s.Update(ctx, func(tx store.Tx) error { return tx.Records().Add(ctx, fullRecord("j", attempt), list, nil) })
	}
	missing := func(attempt int) {
		t.Helper()
		wantKind(t, "get a missing record", viewErr(t, s, func(tx store.Tx) (evidence.Record, error) {
			return tx.Records().Get(ctx, "j", attempt)
		}), fault.NotFound)
	}
	missing(0)
	equal(t, "artifacts of none", len(artifacts(0)), 0)
	a, b := evidence.Artifact{Name: "a " + odd, SHA256: "x", Bytes: 1 << 40}, evidence.Artifact{Name: "b"}
	check(t, add(2, b, a))
	check(t, add(10))
	check(t, add(1, b))
	for _, attempt := range []int{1, 2, 10} {
		equal(t, "record of a try", get(attempt), fullRecord("j", attempt))
	}
	equal(t, "record of the newest try", get(0), fullRecord("j", 10))
	equal(t, "artifacts by name", artifacts(2), []evidence.Artifact{a, b})
	equal(t, "artifacts of another try", artifacts(1), []evidence.Artifact{b})
	equal(t, "artifacts of the newest try, which left none", len(artifacts(0)), 0)
	missing(3)
	wantKind(t, "add a record again", add(2), fault.Conflict)
	wantKind(t, "add two artifacts of one name", add(3, a, a), fault.Conflict)
	missing(3)
	zero := evidence.Record{JobID: "zero", Attempt: 1}
	update(t, s, func(tx store.Tx) error { return tx.Records().Add(ctx, zero, nil, nil) })
	equal(t, "record without times", view(t, s, func(tx store.Tx) (evidence.Record, error) { return tx.Records().Get(ctx, "zero", 0) }), zero)
}

func testBlobs(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	digest := digestOf
	add := func(attempt int, data ...string) error {
		blobs := map[string][]byte{}
		for _, d := range data {
			blobs[digest(d)] = []byte(d)
		}
		return s.Update(ctx, func(tx store.Tx) error {
			return tx.Records().Add(ctx, fullRecord("j", attempt), nil, blobs)
		})
	}
	want := func(attempt int, data string, there bool) {
		t.Helper()
		equal(t, "blob", view(t, s, func(tx store.Tx) (string, error) {
			got, ok, err := tx.Records().Blob(ctx, "j", attempt, digest(data))
			equal(t, "there is the blob "+data, ok, there)
			return string(got), err
		}), map[bool]string{true: data}[there])
	}
	want(0, "a", false)
	check(t, add(1, "a", "", "with a \x00 in it and "+odd, "\xff\xfe"))
	check(t, add(2, "b"))
	for _, data := range []string{"a", "", "with a \x00 in it and " + odd, "\xff\xfe"} {
		want(1, data, true)
	}
	want(1, "b", false)
	want(2, "b", true)
	want(0, "b", true)
	want(0, "a", false)
	wantKind(t, "add a blob without a digest", s.Update(ctx, func(tx store.Tx) error {
		return tx.Records().Add(ctx, fullRecord("j", 3), nil, map[string][]byte{"x": nil})
	}), fault.Invalid)
}

func testPause(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	get := func() policy.Pause {
		return view(t, s, func(tx store.Tx) (policy.Pause, error) { return tx.Organisation().Pause(ctx) })
	}
	equal(t, "before the first", get(), policy.Pause{})
	for _, p := range []policy.Pause{{Paused: true, Reason: "r " + odd, Actor: "a " + odd, At: moment(1)}, {Reason: "on", Actor: "b", At: moment(2)}} {
		update(t, s, func(tx store.Tx) error { return tx.Organisation().SetPause(ctx, p) })
		equal(t, "pause", get(), p)
	}
}

func testKeys(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	a, secret := policy.NewKey(policy.Admin, "a "+odd, moment(1))
	a.CreatedBy, a.ExpiresAt, a.Scope = "by "+odd, moment(9), policy.Scope{Actions: []policy.Action{policy.Read, policy.Audit}, Owner: "owner " + odd, Project: 1 << 40}
	b, _ := policy.NewKey(policy.Worker, "b", moment(2))
	byHash := func(hash [32]byte) policy.Key {
		return view(t, s, func(tx store.Tx) (policy.Key, error) { return tx.Keys().ByHash(ctx, hash) })
	}
	revoke := func(id string, at time.Time) error {
		return s.Update(ctx, func(tx store.Tx) error { return tx.Keys().Revoke(ctx, id, at) })
	}
	update(t, s, func(tx store.Tx) error { return errors.Join(tx.Keys().Add(ctx, b), tx.Keys().Add(ctx, a)) })
	equal(t, "key", byHash(policy.HashKey(secret)), a)
	equal(t, "keys, oldest first", view(t, s, func(tx store.Tx) ([]policy.Key, error) { return tx.Keys().List(ctx) }), []policy.Key{a, b})
	wantKind(t, "get a missing key", viewErr(t, s, func(tx store.Tx) (policy.Key, error) {
		return tx.Keys().ByHash(ctx, policy.HashKey("other"))
	}), fault.NotFound)
	wantKind(t, "add a key again", s.Update(ctx, func(tx store.Tx) error { return tx.Keys().Add(ctx, a) }), fault.Conflict)

	check(t, revoke(a.ID, moment(3)))
	check(t, revoke(a.ID, moment(4)))
	a.RevokedAt = moment(3)
	equal(t, "revoked key", byHash(a.Hash), a)
	equal(t, "key that was not revoked", byHash(b.Hash), b)
	for _, at := range []time.Time{moment(6), moment(5)} {
		update(t, s, func(tx store.Tx) error { return tx.Keys().Used(ctx, b.ID, at) })
	}
	b.UsedAt = moment(6)
	equal(t, "key that was used", view(t, s, func(tx store.Tx) (policy.Key, error) { return tx.Keys().Get(ctx, b.ID) }), b)
	wantKind(t, "get a key by a missing id", viewErr(t, s, func(tx store.Tx) (policy.Key, error) { return tx.Keys().Get(ctx, "none") }), fault.NotFound)
	wantKind(t, "revoke a missing key", revoke("none", moment(3)), fault.NotFound)
	wantKind(t, "revoke at no time", revoke(b.ID, time.Time{}), fault.Invalid)
}

func testLeaders(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	acquire := func(holder string, now int, force bool) (fence int64, leads bool) {
		t.Helper()
		update(t, s, func(tx store.Tx) (err error) {
			fence, leads, err = tx.Leaders().Acquire(ctx, holder, moment(now), 10*time.Second, force)
			return err
		})
		return fence, leads
	}
	checkFence := func(fence int64) error {
		return s.Update(ctx, func(tx store.Tx) error { return tx.Leaders().Check(ctx, fence) })
	}
	for _, fence := range []int64{0, 1} {
		wantKind(t, "check before anybody led", checkFence(fence), fault.Conflict)
	}
	equal(t, "holder before anybody led", view(t, s, func(tx store.Tx) (string, error) { return tx.Leaders().Holder(ctx) }), "")
	var fence int64
	steps := []struct {
		what   string
		holder string
		now    int
		force  bool
		leads  bool
		change bool // of holder, so the fence grows
	}{
		{"the first takes it", "a", 0, false, true, true},
		{"its term runs", "b", 9, false, false, false},
		{"it extends", "a", 5, false, true, false},
		{"the longer term runs", "b", 14, false, false, false},
		{"the term is over", "b", 15, false, true, true},
		{"the former must wait too", "a", 20, false, false, false},
		{"by force", "a", 20, true, true, true},
		{"by force again", "a", 21, true, true, false},
		{"late, but nobody came", "a", 50, false, true, false},
	}
	for _, step := range steps {
		got, leads := acquire(step.holder, step.now, step.force)
		equal(t, step.what+": leads", leads, step.leads)
		if step.change != (got > fence) || got < fence {
			t.Fatalf("%s: fence %d follows %d", step.what, got, fence)
		}
		if fence != 0 && got != fence {
			wantKind(t, step.what+": check the former fence", checkFence(fence), fault.Conflict)
		}
		fence = got
		check(t, checkFence(fence))
		if leads {
			equal(t, step.what+": holder", view(t, s, func(tx store.Tx) (string, error) { return tx.Leaders().Holder(ctx) }), step.holder)
		}
	}
	wantKind(t, "check a future fence", checkFence(fence+1), fault.Conflict)
}

func testReplies(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	get := func(owner, key string) (store.Reply, error) {
		var r store.Reply
		err := s.View(ctx, func(tx store.Tx) (err error) {
			r, err = tx.Replies().Get(ctx, owner, key)
			return err
		})
		return r, err
	}
	put := func(owner, key string, r store.Reply) {
		update(t, s, func(tx store.Tx) error { return tx.Replies().Put(ctx, owner, key, r) })
	}
	forget := func(before time.Time) (n int64) {
		update(t, s, func(tx store.Tx) (err error) {
			n, err = tx.Replies().Forget(ctx, before)
			return err
		})
		return n
	}
	_, err := get("o", "k")
	wantKind(t, "get a missing reply", err, fault.NotFound)
	r := store.Reply{Request: "digest " + odd, Body: json.RawMessage(`{"id":"` + odd[:21] + `"}`), At: moment(1)}
	other := store.Reply{Request: "other", At: moment(2)}
	put("o", "k", r)
	put("p", "k", other)
	for owner, want := range map[string]store.Reply{"o": r, "p": other} {
		got, err := get(owner, "k")
		check(t, err)
		equal(t, "reply to "+owner, got, want)
	}
	equal(t, "forgotten before the oldest", forget(moment(1)), int64(0))
	equal(t, "forgotten", forget(moment(2)), int64(1))
	_, err = get("o", "k")
	wantKind(t, "get a forgotten reply", err, fault.NotFound)
	_, err = get("p", "k")
	check(t, err)
	r.At = moment(5)
	put("p", "k", r)
	got, err := get("p", "k")
	check(t, err)
	equal(t, "reply that was put again", got, r)
}

// kept is one of everything.
type kept struct {
	Jobs      []job.Job
	Events    []event.Event
	Workers   []job.Worker
	Keys      []policy.Key
	Record    evidence.Record
	Artifacts []evidence.Artifact
	Reply     store.Reply
	Stats     store.JobStats
	LeaderErr error
}

func readAll(t *testing.T, s store.Store, fence int64) (k kept) {
	t.Helper()
	ctx := t.Context()
	check(t, s.View(ctx, func(tx store.Tx) error {
		errs := make([]error, 8)
		k.Jobs, errs[0] = tx.Jobs().List(ctx, store.JobFilter{})
		k.Events, errs[1] = tx.Events().List(ctx, event.Filter{}, 100)
		k.Workers, errs[2] = tx.Workers().List(ctx)
		k.Keys, errs[3] = tx.Keys().List(ctx)
		k.Record, errs[4] = tx.Records().Get(ctx, "j", 0)
		k.Artifacts, errs[5] = tx.Records().Artifacts(ctx, "j", 0)
		k.Reply, errs[6] = tx.Replies().Get(ctx, "o", "k")
		k.Stats, errs[7] = tx.Jobs().Stats(ctx, "")
		k.LeaderErr = tx.Leaders().Check(ctx, fence)
		return errors.Join(errs...)
	}))
	return k
}

func testReopen(t *testing.T, db Database) {
	ctx := t.Context()
	s := db()
	var fence, last int64
	full, ev := fullJob(), fullEvent()
	update(t, s, func(tx store.Tx) (err error) {
		key, _ := policy.NewKey(policy.Admin, "k", moment(0))
		fence, _, err = tx.Leaders().Acquire(ctx, "a", moment(0), time.Minute, false)
		return errors.Join(err, tx.Jobs().Add(ctx, &full, newJob()), tx.Events().Append(ctx, newEvent("e"), &ev),
			tx.Workers().Put(ctx, job.Worker{ID: "w"}), tx.Keys().Add(ctx, key),
			tx.Records().Add(ctx, fullRecord("j", 1), []evidence.Artifact{{Name: "a"}}, nil),
			tx.Replies().Put(ctx, "o", "k", store.Reply{Request: "r", At: moment(1)}))
	})
	last = ev.Seq
	before := readAll(t, s, fence)
	check(t, before.LeaderErr)
	check(t, s.Close())

	s = open(t, db)
	equal(t, "all that was kept", readAll(t, s, fence), before, cmpopts.EquateErrors())
	update(t, s, func(tx store.Tx) error { return write(ctx, tx, newJob()) })
	if now := view(t, s, func(tx store.Tx) (int64, error) { return tx.Events().Last(ctx) }); now <= last {
		t.Errorf("number %d was given after %d", now, last)
	}
}
