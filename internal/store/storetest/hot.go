package storetest

import (
	"context"
	"time"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/store"
)

// Hot is what the queue and the doors ask all the time. An adapter looks at
// how its database goes about it, over a long history of jobs job1, job2, ...
// of the roots root0, root1, ..., ten each, with events, where job8 depends on
// job7, and of runs run1, run2, ...
type Hot struct {
	Name string
	Ask  func(store.Tx) error
	// Index is the one that must be used, where it has a name of ours.
	Index string
	// Sorts says that the answer may be sorted: it is bounded by the call, or
	// by how many leases one worker holds, and not by the history.
	Sorts bool
	// List says that people ask it, of all sorts: it is worth a plan each time.
	List bool
}

// HotQueries lists them.
func HotQueries(ctx context.Context) []Hot {
	now, project := moment(0).Add(time.Hour), int64(3)
	jobs := func(f store.JobFilter) func(store.Tx) error {
		return func(tx store.Tx) error { _, err := tx.Jobs().List(ctx, f); return err }
	}
	events := func(f event.Filter) func(store.Tx) error {
		return func(tx store.Tx) error { _, err := tx.Events().List(ctx, f, 100); return err }
	}
	runs := func(f store.RunFilter) func(store.Tx) error {
		return func(tx store.Tx) error { _, err := tx.Runs().List(ctx, f); return err }
	}
	const anything = "anything" // names that exist are of no matter to a plan
	return []Hot{
		{Name: "get", Ask: func(tx store.Tx) error { _, err := tx.Jobs().Get(ctx, "job7"); return err }},
		{Name: "put", Ask: func(tx store.Tx) error {
			j, err := tx.Jobs().Get(ctx, "job7")
			if err != nil {
				return err
			}
			j.State, j.Outcome, j.Title = job.Queued, "", "changed"
			return tx.Jobs().Put(ctx, &j)
		}},
		{Name: "floor", Ask: func(tx store.Tx) error { _, err := tx.History().Floor(ctx); return err }},
		{Name: "done", Index: "job_done", Ask: func(tx store.Tx) error { _, err := tx.History().EndedPlans(ctx, now, 10); return err }},
		{Name: "due", Index: "job_due", Ask: func(tx store.Tx) error { _, err := tx.Jobs().Due(ctx, now, 10); return err }},
		{Name: "ready", Index: "job_ready", Ask: func(tx store.Tx) error { _, err := tx.Jobs().NextReady(ctx); return err }},
		{Name: "leasable", Index: "job_leasable", Sorts: true, Ask: func(tx store.Tx) error {
			_, err := tx.Jobs().Leasable(ctx, []string{"a", "b"}, 3)
			return err
		}},
		{Name: "bound", Index: "job_leasable", Ask: func(tx store.Tx) error { _, err := tx.Jobs().Bound(ctx, "a", 3); return err }},
		{Name: "machines", Ask: func(tx store.Tx) error { _, err := tx.Machines().Passing(ctx, now, 10); return err }},
		{Name: "expired", Index: "job_lease", Ask: func(tx store.Tx) error { _, err := tx.Jobs().Expired(ctx, now, 10); return err }},
		{Name: "held", Index: "job_lease", Sorts: true, Ask: func(tx store.Tx) error { _, err := tx.Jobs().HeldBy(ctx, "w"); return err }},
		{Name: "depends", Ask: func(tx store.Tx) error { _, err := tx.Jobs().Dependents(ctx, "job7"); return err }},
		{Name: "find", Ask: func(tx store.Tx) error { _, err := tx.Jobs().Find(ctx, "job7", "job8", "job9"); return err }},
		{Name: "depend", Ask: func(tx store.Tx) error { _, err := tx.Jobs().Dependents(ctx, "job7", "job8"); return err }},
		{Name: "states", Index: "job_root", Ask: func(tx store.Tx) error {
			_, err := tx.Jobs().States(ctx, "root7", "root8")
			return err
		}},
		{Name: "children", Index: "job_root", Ask: func(tx store.Tx) error { _, err := tx.Jobs().Children(ctx, "root7"); return err }},
		{Name: "busy", Index: "job_busy", Ask: func(tx store.Tx) error { _, err := tx.Jobs().Busy(ctx); return err }},
		{Name: "stats", Index: "job_open", Ask: func(tx store.Tx) error { _, err := tx.Jobs().Stats(ctx, ""); return err }},
		{Name: "my stats", Index: "job_open", Ask: func(tx store.Tx) error { _, err := tx.Jobs().Stats(ctx, "local"); return err }},
		{Name: "by state", Index: "job_state", List: true, Ask: jobs(store.JobFilter{State: job.Queued, Before: 9})},
		{Name: "by owner", Index: "job_owner", List: true, Ask: jobs(store.JobFilter{Owner: anything, Before: 9})},
		{Name: "by root", Index: "job_root", List: true, Ask: jobs(store.JobFilter{RootID: "root7"})},
		{Name: "project", Index: "job_project", List: true, Ask: jobs(store.JobFilter{ProjectID: &project})},
		{Name: "four words", Index: "job_state", List: true, Ask: jobs(store.JobFilter{
			State: job.Assigned, Role: "Employee", Owner: anything, ProjectID: &project, Before: 9,
		})},
		{Name: "ended", List: true, Ask: jobs(store.JobFilter{State: job.Failed, Owner: "local"})},
		{Name: "page", List: true, Ask: jobs(store.JobFilter{Before: 1000})},
		{Name: "last", Ask: func(tx store.Tx) error { _, err := tx.Events().Last(ctx); return err }},
		{Name: "after", List: true, Ask: events(event.Filter{After: 199000})},
		{Name: "of a job", Index: "event_job", List: true, Ask: events(event.Filter{After: 10, JobID: "job7"})},
		{Name: "one of", Index: "event_job", List: true, Ask: events(event.Filter{
			JobID: "job7", RootID: "root7", Owner: "local", ProjectID: 3, Types: []event.Type{"a", "b"},
		})},
		{Name: "of a root", Index: "event_root", List: true, Ask: events(event.Filter{RootID: "root7", Owner: "local"})},
		{Name: "entity", Index: "event_entity", List: true, Ask: events(event.Filter{EntityIDs: []string{"w"}, Entities: []string{"worker"}, After: 5})},
		{Name: "reply", Ask: missing(func(tx store.Tx) error { _, err := tx.Replies().Get(ctx, "o", "k"); return err })},
		{Name: "forget", Index: "reply_at", Ask: func(tx store.Tx) error { _, err := tx.Replies().Forget(ctx, now); return err }},
		{Name: "record", Ask: missing(func(tx store.Tx) error { _, err := tx.Records().Get(ctx, "j", 0); return err })},
		{Name: "artifacts", Ask: func(tx store.Tx) error { _, err := tx.Records().Artifacts(ctx, "j", 0); return err }},
		{Name: "run", Ask: missing(func(tx store.Tx) error { _, err := tx.Runs().Get(ctx, "r"); return err })},
		{Name: "run put", Ask: func(tx store.Tx) error { return tx.Runs().Put(ctx, &run.Run{ID: "r"}, nil) }},
		{Name: "run end", Ask: func(tx store.Tx) error { return tx.Runs().Put(ctx, &run.Run{ID: "r", EndedAt: now}, nil) }},
		{Name: "open runs", Index: "run_open", Ask: func(tx store.Tx) error { _, err := tx.Runs().Open(ctx, "run5", 10); return err }},
		{Name: "orphans", Index: "run_open", Ask: func(tx store.Tx) error { _, err := tx.Runs().Orphans(ctx, now, "run5", 10); return err }},
		{Name: "run stats", Index: "run_open", Sorts: true, Ask: func(tx store.Tx) error { _, err := tx.Runs().Stats(ctx); return err }},
		{Name: "runs", List: true, Ask: runs(store.RunFilter{})},
		{Name: "my runs", Index: "run_owner", List: true, Ask: runs(store.RunFilter{Owner: anything, Before: "run5"})},
		{Name: "my waiting runs", Index: "run_open", List: true, Ask: runs(store.RunFilter{Owner: "local", State: run.Queued})},
		{Name: "runs of a project", Index: "run_project", List: true, Ask: runs(store.RunFilter{Project: project, Before: "run5"})},
		{Name: "ended runs", Index: "run_ended", Ask: func(tx store.Tx) error { _, err := tx.History().EndedRuns(ctx, time.UnixMicro(1), 10); return err }},
		{Name: "hooks", Index: "run_hook_due", Ask: func(tx store.Tx) error { _, err := tx.Hooks().Due(ctx, now, 10); return err }},
		{Name: "sandbox", Ask: missing(func(tx store.Tx) error { _, err := tx.Sandboxes().Get(ctx, "s"); return err })},
		{Name: "sandbox put", Ask: func(tx store.Tx) error { return tx.Sandboxes().Put(ctx, &live.Sandbox{ID: "s"}) }},
		{Name: "sandbox by name", Index: "sandbox_name", Ask: missing(func(tx store.Tx) error { _, err := tx.Sandboxes().ByName(ctx, "o", "n"); return err })},
		{Name: "sandboxes held", Index: "sandbox_open", Ask: func(tx store.Tx) error { _, err := tx.Sandboxes().Held(ctx, "w"); return err }},
		{Name: "sandboxes due", Index: "sandbox_due", Ask: func(tx store.Tx) error { _, err := tx.Sandboxes().Due(ctx, now, 10); return err }},
		{Name: "exec", Ask: missing(func(tx store.Tx) error { _, err := tx.Execs().Get(ctx, "e"); return err })},
		{Name: "exec end", Ask: func(tx store.Tx) error { return tx.Execs().Put(ctx, &live.Exec{ID: "e", EndedAt: now}, nil) }},
		{Name: "execs open", Index: "exec_open", Ask: func(tx store.Tx) error { _, err := tx.Execs().Open(ctx, "s"); return err }},
		{Name: "audit of a target", Index: "audit_target", List: true, Ask: func(tx store.Tx) error {
			_, err := tx.Audit().List(ctx, audit.Filter{Target: anything, Newest: true}, 100)
			return err
		}},
		{Name: "audit append", Ask: missing(func(tx store.Tx) error { return appendAudit(ctx, tx, "t") })},
		{Name: "key", Ask: missing(func(tx store.Tx) error { _, err := tx.Keys().ByHash(ctx, [32]byte{}); return err })},
	}
}

// missing asks for what is not there.
func missing(ask func(store.Tx) error) func(store.Tx) error {
	return func(tx store.Tx) error {
		_ = ask(tx)
		return nil
	}
}
