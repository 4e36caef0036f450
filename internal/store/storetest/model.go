package storetest

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
)

// model answers the job queries by looking at every job.
type model struct{ jobs []job.Job }

// choose returns the jobs that are wanted, in the order of compare, at most n.
func (m *model) choose(n int, compare func(a, b job.Job) int, want func(j job.Job) bool) []int64 {
	var list []job.Job
	for _, j := range m.jobs {
		if want(j) {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, compare)
	return seqs(list[:min(n, len(list))])
}

func oldestFirst(a, b job.Job) int { return cmp.Compare(a.Seq, b.Seq) }
func newestFirst(a, b job.Job) int { return cmp.Compare(b.Seq, a.Seq) }

func urgentFirst(a, b job.Job) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), oldestFirst(a, b))
}

func shortestLease(a, b job.Job) int {
	return cmp.Or(a.LeaseUntil.Compare(b.LeaseUntil), oldestFirst(a, b))
}

func inWork(j job.Job) bool {
	return (j.State == job.InProgress || j.State == job.Validating) && !j.IsRoot()
}

func listed(j job.Job, f store.JobFilter) bool {
	return (f.State == "" || j.State == f.State) &&
		(f.ProjectID == nil || j.ProjectID == *f.ProjectID) &&
		(f.Role == "" || j.Role == f.Role) &&
		(f.RootID == "" || j.RootID == f.RootID) &&
		(f.Owner == "" || j.Owner == f.Owner) &&
		(f.Outcome == "" || j.Outcome == f.Outcome) &&
		(f.Before == 0 || j.Seq < f.Before)
}

func (m *model) nextReady() (next time.Time) {
	for _, j := range m.jobs {
		if j.State == job.Queued && j.Waiting == 0 && (next.IsZero() || j.ReadyAt.Before(next)) {
			next = j.ReadyAt
		}
	}
	return next
}

func (m *model) busy() map[int64]int {
	busy := map[int64]int{}
	for _, j := range m.jobs {
		if (j.State == job.Assigned || j.State == job.InProgress) && !j.IsRoot() {
			busy[j.ProjectID]++
		}
	}
	return busy
}

func (m *model) stats(owner string) store.JobStats {
	stats := store.JobStats{Counts: map[job.State]int64{}}
	for _, j := range m.jobs {
		if j.IsRoot() || (owner != "" && j.Owner != owner) {
			continue
		}
		stats.Counts[j.State]++
		if j.State == job.Failed && (j.Outcome == job.OutcomeFailed || j.Outcome == job.OutcomeLost) {
			stats.DeadLetters++
		}
		if (j.State == job.Queued || j.State == job.Assigned) &&
			(stats.OldestQueued.IsZero() || j.CreatedAt.Before(stats.OldestQueued)) {
			stats.OldestQueued = j.CreatedAt
		}
	}
	return stats
}

// The words of the model are few, so that filters meet.
func drawJob(t *rapid.T, old *job.Job) *job.Job {
	j := newJob()
	if old != nil {
		c := *old
		j = &c
	} else {
		j.RootID = rapid.SampledFrom([]string{j.ID, "r1", "r2"}).Draw(t, "root")
		j.Owner = rapid.SampledFrom([]string{"local", "o1"}).Draw(t, "owner")
		j.DependsOn = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"d1", "d2"}), 0, 2, rapid.ID).Draw(t, "depends on")
		j.CreatedAt = moment(rapid.IntRange(0, 9).Draw(t, "created"))
	}
	j.State = rapid.SampledFrom(job.States()).Draw(t, "state")
	j.Outcome = rapid.SampledFrom([]job.Outcome{"", job.OutcomeOK, job.OutcomeFailed, job.OutcomeLost}).Draw(t, "outcome")
	j.Priority = rapid.IntRange(-1, 1).Draw(t, "priority")
	j.Waiting = rapid.IntRange(0, 1).Draw(t, "waiting")
	j.ReadyAt = moment(rapid.IntRange(0, 9).Draw(t, "ready"))
	j.LeaseUntil = moment(rapid.IntRange(0, 9).Draw(t, "lease"))
	j.AssignedModel = rapid.SampledFrom([]string{"", "m1", "m2"}).Draw(t, "model")
	j.Worker = rapid.SampledFrom([]string{"", "w1", "w2"}).Draw(t, "worker")
	j.ProjectID = rapid.Int64Range(0, 2).Draw(t, "project")
	j.Role = rapid.SampledFrom([]string{"Employee", "Validator"}).Draw(t, "role")
	return j
}

func drawFilter(t *rapid.T, last int64) store.JobFilter {
	f := store.JobFilter{
		State:   rapid.SampledFrom(append(job.States(), "")).Draw(t, "state"),
		Role:    rapid.SampledFrom([]string{"", "Validator"}).Draw(t, "role"),
		RootID:  rapid.SampledFrom([]string{"", "r1"}).Draw(t, "root"),
		Owner:   rapid.SampledFrom([]string{"", "o1"}).Draw(t, "owner"),
		Outcome: rapid.SampledFrom([]job.Outcome{"", job.OutcomeOK}).Draw(t, "outcome"),
		Before:  rapid.Int64Range(0, last+1).Draw(t, "before"),
		Limit:   rapid.IntRange(1, 10).Draw(t, "limit"),
	}
	if rapid.Bool().Draw(t, "by project") {
		p := rapid.Int64Range(0, 2).Draw(t, "project")
		f.ProjectID = &p
	}
	return f
}

// testJobModel adds and changes random jobs, and holds every query against
// the model.
func testJobModel(t *testing.T, fresh func() Database) {
	rapid.Check(t, func(r *rapid.T) {
		s := fresh()()
		defer func() { check(r, s.Close()) }()
		m := &model{}
		update(r, s, func(tx store.Tx) error {
			m.jobs = nil
			for range rapid.IntRange(0, 25).Draw(r, "jobs") {
				j := drawJob(r, nil)
				if err := tx.Jobs().Add(r.Context(), j); err != nil {
					return err
				}
				m.jobs = append(m.jobs, *j)
			}
			return nil
		})
		compareJobs(r, s, m)
		update(r, s, func(tx store.Tx) error {
			for i := range m.jobs {
				if rapid.Bool().Draw(r, "change") {
					m.jobs[i] = *drawJob(r, &m.jobs[i])
					if err := tx.Jobs().Put(r.Context(), &m.jobs[i]); err != nil {
						return err
					}
				}
			}
			return nil
		})
		compareJobs(r, s, m)
	})
}

func compareJobs(t *rapid.T, s store.Store, m *model) {
	ctx := t.Context()
	now, n := moment(rapid.IntRange(0, 9).Draw(t, "now")), rapid.IntRange(0, 12).Draw(t, "n")
	f := drawFilter(t, int64(len(m.jobs)))
	same := func(what string, want []int64, query func(store.Jobs) ([]job.Job, error)) {
		t.Helper()
		got := view(t, s, func(tx store.Tx) ([]job.Job, error) { return query(tx.Jobs()) })
		equal(t, what, seqs(got), want, cmpopts.EquateEmpty())
	}
	same("Due", m.choose(n, urgentFirst, func(j job.Job) bool {
		return j.State == job.Queued && j.Waiting == 0 && !j.ReadyAt.After(now)
	}), func(q store.Jobs) ([]job.Job, error) { return q.Due(ctx, now, n) })
	for _, names := range [][]string{nil, {"m1"}, {"m2", "m1", "m2", ""}} {
		same("Leasable", m.choose(n, urgentFirst, func(j job.Job) bool {
			return j.State == job.Assigned && (j.AssignedModel == "" || slices.Contains(names, j.AssignedModel))
		}), func(q store.Jobs) ([]job.Job, error) { return q.Leasable(ctx, names, n) })
	}
	same("Bound", m.choose(n, urgentFirst, func(j job.Job) bool {
		return j.State == job.Assigned && j.AssignedModel == "m1"
	}), func(q store.Jobs) ([]job.Job, error) { return q.Bound(ctx, "m1", n) })
	same("Expired", m.choose(n, shortestLease, func(j job.Job) bool {
		return inWork(j) && j.LeaseUntil.Before(now)
	}), func(q store.Jobs) ([]job.Job, error) { return q.Expired(ctx, now, n) })
	all := len(m.jobs)
	same("HeldBy", m.choose(all, oldestFirst, func(j job.Job) bool { return inWork(j) && j.Worker == "w1" }),
		func(q store.Jobs) ([]job.Job, error) { return q.HeldBy(ctx, "w1") })
	same("Dependents", m.choose(all, oldestFirst, func(j job.Job) bool { return slices.Contains(j.DependsOn, "d1") }),
		func(q store.Jobs) ([]job.Job, error) { return q.Dependents(ctx, "d1") })
	same("Dependents of several", m.choose(all, oldestFirst, func(j job.Job) bool {
		return slices.Contains(j.DependsOn, "d1") || slices.Contains(j.DependsOn, "d2")
	}), func(q store.Jobs) ([]job.Job, error) { return q.Dependents(ctx, "d2", "d1", "nobody") })
	some := []string{"nobody"}
	for i := range m.jobs {
		if i%3 != 1 {
			some = append(some, m.jobs[i].ID)
		}
	}
	same("Find", m.choose(all, oldestFirst, func(j job.Job) bool { return slices.Contains(some, j.ID) }),
		func(q store.Jobs) ([]job.Job, error) { return q.Find(ctx, some...) })
	var states []store.TaskState
	for _, j := range m.jobs {
		if !j.IsRoot() && (j.RootID == "r1" || j.RootID == "r2") {
			states = append(states, store.TaskState{ID: j.ID, RootID: j.RootID, State: j.State})
		}
	}
	byID := func(a, b store.TaskState) bool { return a.ID < b.ID }
	equal(t, "States", view(t, s, func(tx store.Tx) ([]store.TaskState, error) {
		return tx.Jobs().States(ctx, "r1", "r2", "nobody")
	}), states, cmpopts.EquateEmpty(), cmpopts.SortSlices(byID))
	same("Children", m.choose(all, oldestFirst, func(j job.Job) bool { return j.RootID == "r1" && !j.IsRoot() }),
		func(q store.Jobs) ([]job.Job, error) { return q.Children(ctx, "r1") })
	same("List", m.choose(f.Limit, newestFirst, func(j job.Job) bool { return listed(j, f) }),
		func(q store.Jobs) ([]job.Job, error) { return q.List(ctx, f) })
	equal(t, "NextReady", view(t, s, func(tx store.Tx) (time.Time, error) { return tx.Jobs().NextReady(ctx) }), m.nextReady())
	equal(t, "Busy", view(t, s, func(tx store.Tx) (map[int64]int, error) { return tx.Jobs().Busy(ctx) }), m.busy())
	for _, owner := range []string{"", "o1", "nobody"} {
		got := view(t, s, func(tx store.Tx) (store.JobStats, error) { return tx.Jobs().Stats(ctx, owner) })
		equal(t, "Stats of "+owner, got, m.stats(owner))
	}
}
