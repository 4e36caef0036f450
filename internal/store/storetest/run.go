package storetest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// fullRun has no zero field but EndedAt and Result.
func fullRun() run.Run {
	return run.Run{
		ID: job.NewID(), Owner: "owner " + odd, Project: 1 << 40, State: run.Running, Language: "python", CodeSHA256: digestOf("code"), Timeout: 12345678901,
		Sync: true, Manager: "manager " + odd, Fence: 1<<62 + 1, Attempt: 2, Worker: "worker " + odd, Verdict: sandbox.OOM, Reason: "reason " + odd,
		Webhook: "https://example.org/" + odd, Trace: "trace " + odd, CreatedAt: moment(1), StartedAt: moment(2),
	}
}

// newRun is a plain run that waits.
func newRun(owner, manager string) *run.Run {
	return &run.Run{ID: job.NewID(), Owner: owner, State: run.Queued, Language: "python", Manager: manager, CreatedAt: moment(0)}
}

// fullResult has no zero field but what is left to the bytes.
func fullResult() *run.Result {
	return &run.Result{
		Verdict: sandbox.Timeout, Cause: "cause " + odd, ExitCode: -1, Signal: 9, Step: "run",
		Stdout:    run.Output{Kept: 3, Seen: 9, SHA256: digestOf("out"), Truncated: true},
		Stderr:    run.Output{Kept: 4, Seen: 4, SHA256: digestOf("err!")},
		Artifacts: map[string]run.Artifact{"plot " + odd: {SHA256: digestOf("plot"), Bytes: 4}}, Skipped: []string{"fifo " + odd},
		Usage:   run.Usage{CPU: time.Second, PeakMemory: 1 << 40, Wall: 2 * time.Second},
		Sandbox: "box", Driver: "gvisor", Isolation: "kernel", Image: "host", Digest: "sha256:x", Enforced: sandbox.Limits{Memory: 5}, Warm: true,
		Worker: "w", Started: moment(2), Ended: moment(3), Stages: []run.Stage{{Name: "exec", Took: time.Millisecond}},
	}
}

func testRunRoundTrip(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	get := func(id string) run.Run {
		t.Helper()
		return view(t, s, func(tx store.Tx) (run.Run, error) { return tx.Runs().Get(ctx, id) })
	}
	full := fullRun()
	order := run.Order{
		ID: full.ID, Owner: full.Owner, Language: "python", Code: "print('" + odd + "')", Files: map[string]string{"a": odd}, Args: []string{odd},
		Env: map[string]string{"A": odd}, Stdin: odd, Timeout: time.Second, ReadOnly: true, Keep: true, Limits: sandbox.Limits{Memory: 1},
	}
	update(t, s, func(tx store.Tx) error { return tx.Runs().Add(ctx, &full, &order) })
	equal(t, "the run", get(full.ID), full)
	equal(t, "its order", view(t, s, func(tx store.Tx) (run.Order, error) { return tx.Runs().Order(ctx, full.ID) }), order)
	wantKind(t, "add it again", s.Update(ctx, func(tx store.Tx) error { return tx.Runs().Add(ctx, &full, nil) }), fault.Conflict)
	wantKind(t, "the record of one that runs", viewErr(t, s, func(tx store.Tx) ([]byte, error) { return tx.Runs().Record(ctx, full.ID) }), fault.NotFound)
	missing := viewErr(t, s, func(tx store.Tx) (run.Run, error) { return tx.Runs().Get(ctx, "none") })
	wantKind(t, "get a missing run", missing, fault.NotFound)

	full.State, full.Manager, full.Fence, full.Attempt, full.Worker, full.Verdict, full.Reason = run.Queued, "", 7, 3, "", "", "because"
	full.StartedAt = moment(9)
	update(t, s, func(tx store.Tx) error { return tx.Runs().Put(ctx, &full, nil) })
	equal(t, "the run after a change", get(full.ID), full)
	equal(t, "its order after a change", view(t, s, func(tx store.Tx) (run.Order, error) { return tx.Runs().Order(ctx, full.ID) }), order)

	full.State, full.Verdict, full.EndedAt, full.Result = run.Completed, sandbox.Timeout, moment(4), fullResult()
	small := map[string][]byte{digestOf("out"): []byte("out"), digestOf("err!"): []byte("err!")}
	update(t, s, func(tx store.Tx) error { return tx.Runs().Put(ctx, &full, small) })
	equal(t, "the run after its end", get(full.ID), full)
	gone := viewErr(t, s, func(tx store.Tx) (run.Order, error) { return tx.Runs().Order(ctx, full.ID) })
	wantKind(t, "the order of an ended run", gone, fault.NotFound)
	var record run.Record
	check(t, json.Unmarshal(view(t, s, func(tx store.Tx) ([]byte, error) { return tx.Runs().Record(ctx, full.ID) }), &record))
	equal(t, "the record", record, full.Record())
	for _, text := range []string{"out", "err!"} {
		equal(t, "a blob of the run", string(runBlob(t, s, full.ID, digestOf(text))), text)
	}
	equal(t, "a blob that is not there", len(runBlob(t, s, full.ID, digestOf("plot"))), 0)
}

func runBlob(t *testing.T, s store.Store, id, digest string) []byte {
	t.Helper()
	return view(t, s, func(tx store.Tx) ([]byte, error) {
		data, _, err := tx.Runs().Blob(t.Context(), id, digest)
		return data, err
	})
}

func testRunLists(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	var all []*run.Run
	update(t, s, func(tx store.Tx) error {
		all = nil
		for i := range 6 {
			r := newRun(fmt.Sprintf("owner%d", i%2), fmt.Sprintf("manager%d", i%3))
			r.CreatedAt, r.Project = moment(i), int64(i/3)
			all = append(all, r)
			if err := tx.Runs().Add(ctx, r, nil); err != nil {
				return err
			}
		}
		all[0].State, all[0].EndedAt = run.Cancelled, moment(10)
		all[5].State = run.Running
		for _, i := range []int{0, 5} {
			if err := tx.Runs().Put(ctx, all[i], nil); err != nil {
				return err
			}
		}
		return nil
	})
	ids := func(what string, ask func(store.Tx) ([]run.Run, error), want ...int) {
		t.Helper()
		got := view(t, s, ask)
		place := make([]int, len(got))
		for i := range got {
			for j := range all {
				if all[j].ID == got[i].ID {
					place[i] = j
				}
			}
		}
		if want == nil {
			want = []int{}
		}
		equal(t, what, place, want)
	}
	list := func(f store.RunFilter) func(store.Tx) ([]run.Run, error) {
		return func(tx store.Tx) ([]run.Run, error) { return tx.Runs().List(ctx, f) }
	}
	ids("all", list(store.RunFilter{}), 5, 4, 3, 2, 1, 0)
	ids("a page", list(store.RunFilter{Limit: 2, Before: all[4].ID}), 3, 2)
	ids("of one owner", list(store.RunFilter{Owner: "owner1"}), 5, 3, 1)
	ids("of a project", list(store.RunFilter{Project: 1}), 5, 4, 3)
	ids("of a project and an owner", list(store.RunFilter{Project: 1, Owner: "owner1"}), 5, 3)
	ids("of a project nobody has", list(store.RunFilter{Project: 2}))
	ids("that wait", list(store.RunFilter{State: run.Queued, Owner: "owner0"}), 4, 2)
	ids("that were cancelled", list(store.RunFilter{State: run.Cancelled}), 0)
	ids("open", func(tx store.Tx) ([]run.Run, error) { return tx.Runs().Open(ctx, "", 10) }, 1, 2, 3, 4, 5)
	ids("a page of the open", func(tx store.Tx) ([]run.Run, error) { return tx.Runs().Open(ctx, all[2].ID, 2) }, 3, 4)
	ids("no page", func(tx store.Tx) ([]run.Run, error) { return tx.Runs().Open(ctx, "", 0) })
	orphans := func(tx store.Tx) ([]run.Run, error) { return tx.Runs().Orphans(ctx, moment(20), "", 10) }
	ids("that nobody has", orphans, 1, 2, 3, 4, 5)
	update(t, s, func(tx store.Tx) error { return tx.Runs().Attend(ctx, "manager1", moment(21)) })
	update(t, s, func(tx store.Tx) error { return tx.Runs().Attend(ctx, "manager2", moment(20)) })
	ids("with one manager alive", orphans, 2, 3, 5)
	update(t, s, func(tx store.Tx) error { return tx.Runs().Attend(ctx, "manager1", time.Time{}) })
	ids("after it has left", orphans, 1, 2, 3, 4, 5)
	stats := view(t, s, func(tx store.Tx) (store.RunStats, error) { return tx.Runs().Stats(ctx) })
	equal(t, "the count", stats, store.RunStats{Queued: 4, Running: 1, OldestQueued: moment(1)})
}

func testHooks(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	due := func(now int) []store.Hook {
		t.Helper()
		return view(t, s, func(tx store.Tx) ([]store.Hook, error) { return tx.Hooks().Due(ctx, moment(now), 10) })
	}
	a, b := store.Hook{RunID: "a", URL: "https://example.org/" + odd, Tries: 1, NextAt: moment(5)}, store.Hook{RunID: "b", URL: "u", NextAt: moment(3)}
	for _, h := range []store.Hook{a, b} {
		update(t, s, func(tx store.Tx) error { return tx.Hooks().Put(ctx, h) })
	}
	equal(t, "due before", len(due(2)), 0)
	equal(t, "due", due(5), []store.Hook{b, a})
	b.Tries, b.NextAt = 7, moment(9)
	update(t, s, func(tx store.Tx) error { return tx.Hooks().Put(ctx, b) })
	equal(t, "due after one was put off", due(5), []store.Hook{a})
	for range 2 {
		update(t, s, func(tx store.Tx) error { return tx.Hooks().Drop(ctx, "a") })
	}
	equal(t, "due after one was dropped", due(9), []store.Hook{b})
}

func testForgetRuns(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	old, late, openRun := newRun("o", "m"), newRun("o", "m"), newRun("o", "m")
	update(t, s, func(tx store.Tx) error {
		for i, r := range []*run.Run{old, late, openRun} {
			if err := tx.Runs().Add(ctx, r, nil); err != nil {
				return err
			}
			if i == 2 {
				continue
			}
			r.State, r.EndedAt, r.Result = run.Completed, moment(3+i), fullResult()
			if err := tx.Runs().Put(ctx, r, map[string][]byte{digestOf("out"): []byte("out")}); err != nil {
				return err
			}
		}
		return tx.Hooks().Put(ctx, store.Hook{RunID: old.ID, NextAt: moment(1)})
	})
	ended := func(before int) []string {
		return view(t, s, func(tx store.Tx) ([]string, error) { return tx.History().EndedRuns(ctx, moment(before), 10) })
	}
	equal(t, "ended before the first", len(ended(3)), 0)
	equal(t, "ended", ended(10), []string{old.ID, late.ID})
	kept := func() []store.KeptRun {
		return view(t, s, func(tx store.Tx) ([]store.KeptRun, error) { return tx.History().KeptRuns(ctx, "", 10) })
	}
	first := kept()[0]
	equal(t, "what the first refers to", first, store.KeptRun{ID: old.ID, Ended: moment(3), Digests: old.Result.Digests(), Small: first.Small})
	var n int64
	update(t, s, func(tx store.Tx) (err error) {
		n, err = tx.History().DropRunBlobs(ctx, old.ID)
		return err
	})
	if n != first.Small || n < 3 {
		t.Errorf("%d bytes went of %d", n, first.Small)
	}
	equal(t, "a dropped blob", len(runBlob(t, s, old.ID, digestOf("out"))), 0)
	equal(t, "that they were dropped", kept()[0].Dropped, true)
	equal(t, "the other's blob", string(runBlob(t, s, late.ID, digestOf("out"))), "out")
	update(t, s, func(tx store.Tx) (err error) {
		n, err = tx.History().ForgetRuns(ctx, old.ID, openRun.ID, "none")
		return err
	})
	equal(t, "how many were forgotten", n, int64(1))
	equal(t, "hooks of a forgotten run", len(view(t, s, func(tx store.Tx) ([]store.Hook, error) { return tx.Hooks().Due(ctx, moment(9), 9) })), 0)
	left := view(t, s, func(tx store.Tx) ([]run.Run, error) { return tx.Runs().List(ctx, store.RunFilter{}) })
	equal(t, "what is left", len(left), 2)
}
