package storetest

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
)

func getJob(t failing, s store.Store, id string) job.Job {
	t.Helper()
	return view(t, s, func(tx store.Tx) (job.Job, error) { return tx.Jobs().Get(t.Context(), id) })
}

func testJobRoundTrip(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	full := fullJob()
	zero := job.Job{ID: job.NewID()}
	big := fullJob()
	big.Payload = json.RawMessage(`{"text":"` + strings.Repeat("0123456789abcdef", 256<<10) + `"}`)
	elsewhere := fullJob()
	elsewhere.CreatedAt = moment(0).Add(789 * time.Nanosecond).In(time.FixedZone("far", 5*3600))
	none := fullJob()
	none.DependsOn = []string{}
	for name, j := range map[string]*job.Job{"full": &full, "zero": &zero, "big": &big, "elsewhere": &elsewhere, "none": &none} {
		update(t, s, func(tx store.Tx) error { return tx.Jobs().Add(ctx, j) })
		want := *j
		if name == "elsewhere" {
			want.CreatedAt = moment(0) // to the microsecond
		}
		got := getJob(t, s, j.ID)
		equal(t, name+" job", got, want)
		if name == "elsewhere" && got.CreatedAt.Location() != time.UTC {
			t.Errorf("a time came back in %v, want UTC", got.CreatedAt.Location())
		}
	}
}

func testJobAdd(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	a, b, c := newJob(), newJob(), newJob()
	update(t, s, func(tx store.Tx) error { return tx.Jobs().Add(ctx, a, b) })
	sameA, sameB := *a, *b
	err := s.Update(ctx, func(tx store.Tx) error { return tx.Jobs().Add(ctx, c, &sameB) })
	wantKind(t, "add a job twice", err, fault.Conflict)
	wantKind(t, "get a job that was added beside it", viewErr(t, s, func(tx store.Tx) (job.Job, error) {
		return tx.Jobs().Get(ctx, c.ID)
	}), fault.NotFound)
	// A conflict that is expected does not spoil the rest of the update. It may
	// be told only when the function runs again.
	var twice error
	update(t, s, func(tx store.Tx) error {
		twice = tx.Jobs().Add(ctx, &sameA)
		return tx.Jobs().Add(ctx, c)
	})
	wantKind(t, "add a job twice", twice, fault.Conflict)
	if a.Seq <= 0 || b.Seq <= a.Seq || c.Seq <= b.Seq {
		t.Errorf("numbers %d, %d, %d do not grow", a.Seq, b.Seq, c.Seq)
	}
	equal(t, "job whose id was added again", getJob(t, s, b.ID), *b)
}

func testJobPut(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	first := newJob()
	first.DependsOn = []string{"a"}
	update(t, s, func(tx store.Tx) error { return tx.Jobs().Add(ctx, first) })

	moved := *first
	moved.State, moved.Worker, moved.Fence, moved.LeaseUntil = job.InProgress, "w", 3, moment(9)
	update(t, s, func(tx store.Tx) error { return tx.Jobs().Put(ctx, &moved) })
	equal(t, "job after a change of state", getJob(t, s, first.ID), moved)

	all := fullJob()
	all.ID = first.ID
	update(t, s, func(tx store.Tx) error { return tx.Jobs().Put(ctx, &all) })
	want := all
	want.RootID, want.Owner, want.Seq, want.DependsOn, want.CreatedAt, want.Trace = first.RootID, first.Owner, first.Seq, first.DependsOn, first.CreatedAt, first.Trace
	equal(t, "job after a change of all", getJob(t, s, first.ID), want)

	zero := job.Job{ID: first.ID}
	update(t, s, func(tx store.Tx) error { return tx.Jobs().Put(ctx, &zero) })
	want = zero
	want.RootID, want.Owner, want.Seq, want.DependsOn, want.CreatedAt, want.Trace = first.RootID, first.Owner, first.Seq, first.DependsOn, first.CreatedAt, first.Trace
	equal(t, "job after its fields were emptied", getJob(t, s, first.ID), want)
}

func testJobMissing(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	wantKind(t, "get", viewErr(t, s, func(tx store.Tx) (job.Job, error) { return tx.Jobs().Get(ctx, "none") }), fault.NotFound)
	wantKind(t, "put", s.Update(ctx, func(tx store.Tx) error { return tx.Jobs().Put(ctx, newJob()) }), fault.NotFound)
	next := view(t, s, func(tx store.Tx) (time.Time, error) { return tx.Jobs().NextReady(ctx) })
	equal(t, "next ready of none", next, time.Time{})
	busy := view(t, s, func(tx store.Tx) (map[int64]int, error) { return tx.Jobs().Busy(ctx) })
	equal(t, "busy of none", len(busy), 0)
	stats := view(t, s, func(tx store.Tx) (store.JobStats, error) { return tx.Jobs().Stats(ctx, "") })
	equal(t, "oldest of none", stats.OldestQueued, time.Time{})
}

func testJobPages(t *testing.T, db Database) {
	const total = 250
	ctx, s := t.Context(), open(t, db)
	var added []int64
	update(t, s, func(tx store.Tx) error {
		added = nil
		for range total {
			j := newJob()
			if err := tx.Jobs().Add(ctx, j); err != nil {
				return err
			}
			added = append([]int64{j.Seq}, added...)
		}
		return nil
	})
	page := func(f store.JobFilter) []int64 {
		return seqs(view(t, s, func(tx store.Tx) ([]job.Job, error) { return tx.Jobs().List(ctx, f) }))
	}
	equal(t, "page of the default size", page(store.JobFilter{}), added[:100])
	var got []int64
	for before := int64(0); ; before = got[len(got)-1] {
		p := page(store.JobFilter{Before: before, Limit: 60})
		if len(p) == 0 {
			break
		}
		got = append(got, p...)
	}
	equal(t, "all pages together", got, added)
}

func seqs(jobs []job.Job) (list []int64) {
	for _, j := range jobs {
		list = append(list, j.Seq)
	}
	return list
}

// testClaimers lets 16 claimers take 1,000 jobs the way the queue does.
func testClaimers(t *testing.T, db Database) {
	const claimers, total = 16, 1000
	ctx, s := t.Context(), open(t, db)
	update(t, s, func(tx store.Tx) error {
		for range total {
			j := newJob()
			j.State = job.Assigned
			if err := tx.Jobs().Add(ctx, j); err != nil {
				return err
			}
		}
		return nil
	})
	var (
		mu     sync.Mutex
		taken  = map[string]int{}
		fences = map[string]int64{}
		wg     sync.WaitGroup
	)
	for range claimers {
		wg.Go(func() {
			for {
				j, err := claim(ctx, s)
				if err != nil {
					t.Error(err)
				}
				if j == nil {
					return
				}
				mu.Lock()
				taken[j.ID]++
				fences[j.ID] = j.Fence
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	equal(t, "jobs that were taken", len(taken), total)
	for id, n := range taken {
		if n != 1 || fences[id] != 1 {
			t.Errorf("job %s was taken %d times, fence %d", id, n, fences[id])
		}
	}
	stats := view(t, s, func(tx store.Tx) (store.JobStats, error) { return tx.Jobs().Stats(ctx, "") })
	equal(t, "counts", stats.Counts, map[job.State]int64{job.InProgress: total})
}

// claim takes the first job that can be leased, or none.
func claim(ctx context.Context, s store.Store) (got *job.Job, err error) {
	err = s.Update(ctx, func(tx store.Tx) error {
		got = nil
		list, err := tx.Jobs().Leasable(ctx, []string{"w"}, 1)
		if err != nil || len(list) == 0 {
			return err
		}
		j := list[0]
		if err := j.To(job.InProgress); err != nil {
			return err
		}
		j.Fence++
		got = &j
		return tx.Jobs().Put(ctx, &j)
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}
