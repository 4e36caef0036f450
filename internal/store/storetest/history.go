package storetest

import (
	"strconv"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
)

func testForgetEvents(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	forget := func(before, limit int) (n int64) {
		t.Helper()
		update(t, s, func(tx store.Tx) (err error) {
			n, err = tx.History().ForgetEvents(ctx, moment(before), limit)
			return err
		})
		return n
	}
	state := func() []int64 {
		t.Helper()
		return view(t, s, func(tx store.Tx) ([]int64, error) {
			floor, err := tx.History().Floor(ctx)
			if err != nil {
				return nil, err
			}
			list, err := tx.Events().List(ctx, event.Filter{}, 100)
			seqs := []int64{floor}
			for _, e := range list {
				seqs = append(seqs, e.Seq)
			}
			return seqs, err
		})
	}
	equal(t, "forgotten of nothing", forget(100, 10), int64(0))
	equal(t, "nothing", state(), []int64{0})
	for _, at := range []int{1, 2, 9, 3, 4} { // the third keeps those behind it
		update(t, s, func(tx store.Tx) error {
			return tx.Events().Append(ctx, &event.Event{Type: "x", At: moment(at)})
		})
	}
	first := state()[1]
	equal(t, "none is old enough", forget(1, 10), int64(0))
	equal(t, "no limit", forget(100, 0), int64(0))
	equal(t, "one at a time", forget(5, 1), int64(1))
	equal(t, "the rest of the old", forget(5, 10), int64(1))
	equal(t, "floor and events", state(), []int64{first + 1, first + 2, first + 3, first + 4})
	equal(t, "all but the newest", forget(100, 10), int64(2))
	equal(t, "the newest stays", state(), []int64{first + 3, first + 4})
	equal(t, "again", forget(100, 10), int64(0))
	e := event.Event{Type: "x", At: moment(5)}
	update(t, s, func(tx store.Tx) error { return tx.Events().Append(ctx, &e) })
	equal(t, "numbers go on", e.Seq, first+5)
}

// plan stores a root with tasks that ended at a moment, 0 for not yet.
func plan(t *testing.T, s store.Store, root string, ended int, tasks ...job.Outcome) {
	t.Helper()
	ctx := t.Context()
	update(t, s, func(tx store.Tx) error {
		jobs := []*job.Job{{ID: root, RootID: root, Owner: "o", State: job.InProgress, CreatedAt: moment(1)}}
		for i := range tasks {
			id := root + "/" + strconv.Itoa(i)
			j := &job.Job{ID: id, RootID: root, Owner: "o", State: job.InProgress, CreatedAt: moment(1)}
			if i > 0 {
				j.DependsOn = []string{root + "/" + strconv.Itoa(i-1)}
			}
			jobs = append(jobs, j)
		}
		if err := tx.Jobs().Add(ctx, jobs...); err != nil || ended == 0 {
			return err
		}
		for i, j := range jobs {
			j.State, j.CompletedAt = job.Completed, moment(ended)
			if i > 0 {
				if j.Outcome = tasks[i-1]; j.Outcome != job.OutcomeOK {
					j.State = job.Failed
				}
				if err := tx.Records().Add(ctx, fullRecord(j.ID, 1), nil, nil); err != nil {
					return err
				}
			}
			if err := tx.Jobs().Put(ctx, j); err != nil {
				return err
			}
		}
		return nil
	})
}

func testForgetPlan(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	plan(t, s, "late", 20, job.OutcomeOK)
	plan(t, s, "early", 10, job.OutcomeOK, job.OutcomeFailed, job.OutcomeOK)
	plan(t, s, "open", 0, job.OutcomeOK)
	ended := func(before, limit int) []string {
		return view(t, s, func(tx store.Tx) ([]string, error) { return tx.History().EndedPlans(ctx, moment(before), limit) })
	}
	equal(t, "ended before all", len(ended(10, 9)), 0)
	equal(t, "no limit", len(ended(30, 0)), 0)
	equal(t, "one at most", ended(30, 1), []string{"early"})
	equal(t, "ended plans, oldest end first", ended(30, 9), []string{"early", "late"})
	stats := func() store.JobStats {
		return view(t, s, func(tx store.Tx) (store.JobStats, error) { return tx.Jobs().Stats(ctx, "") })
	}
	equal(t, "dead letters before", stats().DeadLetters, int64(1))
	forget := func(root string) (n int64, err error) {
		err = s.Update(ctx, func(tx store.Tx) error {
			if _, err := tx.Jobs().Get(ctx, root); err != nil && !fault.Is(err, fault.NotFound) {
				return err
			}
			if n, err = tx.History().ForgetPlan(ctx, root); err != nil {
				return err
			}
			_, err := tx.Jobs().Get(ctx, root)
			wantKind(t, "get what this update forgot", err, fault.NotFound)
			return nil
		})
		return n, err
	}
	n, err := forget("early")
	check(t, err)
	equal(t, "jobs that went", n, int64(3))
	n, err = forget("early")
	check(t, err)
	equal(t, "jobs that went again", n, int64(0))
	_, err = forget("open")
	wantKind(t, "forget an open plan", err, fault.Conflict)
	after := stats()
	equal(t, "dead letters after", after.DeadLetters, int64(0))
	equal(t, "completed after", after.Counts[job.Completed], int64(1))
	for id, there := range map[string]bool{"early": false, "early/0": false, "early/2": false, "late": true, "late/0": true, "open": true, "open/0": true} {
		err := viewErr(t, s, func(tx store.Tx) (job.Job, error) { return tx.Jobs().Get(ctx, id) })
		equal(t, "there is "+id, err == nil, there)
		err = viewErr(t, s, func(tx store.Tx) (evidence.Record, error) { return tx.Records().Get(ctx, id, 1) })
		equal(t, "there is a record of "+id, err == nil, id == "late/0")
	}
	equal(t, "dependents of what is gone", len(view(t, s, func(tx store.Tx) ([]job.Job, error) { return tx.Jobs().Dependents(ctx, "early/0") })), 0)
}

func testKeptHistory(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	a, b := digestOf("a"), digestOf("b")
	artifacts := []evidence.Artifact{{Name: evidence.StdoutLog, SHA256: a, Bytes: 1}, {Name: "x", SHA256: digestOf("big"), Bytes: 1 << 30}}
	update(t, s, func(tx store.Tx) error {
		for _, id := range []string{"j1", "j2"} {
			for attempt := 1; attempt <= 2; attempt++ {
				r := fullRecord(id, attempt)
				r.Snapshot = &evidence.Snapshot{SHA256: b}
				if err := tx.Records().Add(ctx, r, artifacts, map[string][]byte{a: []byte("a"), b: []byte("b")}); err != nil {
					return err
				}
			}
		}
		return tx.Records().Add(ctx, evidence.Record{JobID: "none", Attempt: 1}, nil, nil)
	})
	list := func(after store.Kept, limit int) []store.Kept {
		return view(t, s, func(tx store.Tx) ([]store.Kept, error) { return tx.History().Kept(ctx, after, limit) })
	}
	all := list(store.Kept{}, 100)
	equal(t, "how many", len(all), 5)
	want := store.Kept{JobID: "j1", Attempt: 2, Ended: fullRecord("j1", 2).Ended, Snapshot: b, Artifacts: artifacts, Small: all[1].Small}
	equal(t, "what is kept", all[1], want)
	equal(t, "bytes of small ones", all[1].Small > 2 && all[4].Small == 0, true)
	equal(t, "pages", append(list(store.Kept{}, 2), list(all[1], 100)...), all)
	equal(t, "no limit", len(list(store.Kept{}, 0)), 0)

	drop := func(id string, attempt int, digests ...string) (n int64) {
		update(t, s, func(tx store.Tx) (err error) {
			n, err = tx.History().DropBlobs(ctx, id, attempt, digests, store.DroppedSnapshot|store.DroppedOutput)
			return err
		})
		return n
	}
	there := func(id string, attempt int, digest string) bool {
		return view(t, s, func(tx store.Tx) (bool, error) {
			_, ok, err := tx.Records().Blob(ctx, id, attempt, digest)
			return ok, err
		})
	}
	equal(t, "bytes that went", drop("j1", 1, b, digestOf("unknown")), all[0].Small/2)
	equal(t, "the one stays", there("j1", 1, a), true)
	equal(t, "the other went", there("j1", 1, b), false)
	equal(t, "another try keeps it", there("j1", 2, b), true)
	drop("j1", 1, a, b)
	equal(t, "bytes that went of nothing", drop("missing", 1, a), int64(0))
	left := list(store.Kept{}, 1)[0]
	equal(t, "nothing is left", left.Small, int64(0))
	equal(t, "what was dropped", left.Dropped, store.DroppedSnapshot|store.DroppedOutput)
}

func testForgetWorkers(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	update(t, s, func(tx store.Tx) error {
		for id, w := range map[string]job.Worker{
			"old": {SeenAt: moment(1)}, "old but here": {SeenAt: moment(1), Connected: true}, "new": {SeenAt: moment(9)},
		} {
			w.ID, w.RegisteredAt = id, moment(0).Add(time.Second)
			if err := tx.Workers().Put(ctx, w); err != nil {
				return err
			}
		}
		n, err := tx.History().ForgetWorkers(ctx, moment(9))
		equal(t, "workers that went", n, int64(1))
		return err
	})
	var ids []string
	for _, w := range view(t, s, func(tx store.Tx) ([]job.Worker, error) { return tx.Workers().List(ctx) }) {
		ids = append(ids, w.ID)
	}
	equal(t, "workers that stay", ids, []string{"new", "old but here"})
}
