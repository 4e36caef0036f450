package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// StatsBody counts jobs. The jobs that stand for whole plans are left out.
type StatsBody struct {
	Counts           map[string]int64 `json:"counts" doc:"How many jobs are in each state."`
	Total            int64            `json:"total"`
	DeadLetters      int64            `json:"dead_letters" doc:"Jobs that used up their tries."`
	OldestQueuedAt   *time.Time       `json:"oldest_queued_at" doc:"When the job that has waited longest was made."`
	OldestAgeSeconds *float64         `json:"oldest_age_seconds" doc:"How long it has waited; null when none waits."`
}

type statsOutput struct{ Body StatsBody }

// WorkerBody is a worker that has registered.
type WorkerBody struct {
	ID           string    `json:"id"`
	Role         string    `json:"role"`
	Models       []string  `json:"models" nullable:"false" doc:"Further names that it answers to."`
	Drivers      []string  `json:"drivers" nullable:"false"`
	Slots        int       `json:"slots" doc:"How many jobs it does at once."`
	Version      string    `json:"version"`
	Connected    bool      `json:"connected"`
	RegisteredAt time.Time `json:"registered_at"`
	SeenAt       time.Time `json:"seen_at"`

	DriverStatus []DriverBody `json:"driver_status" nullable:"false" doc:"How each driver was proved; empty while the worker is away."`
	Paused       string       `json:"paused" doc:"Why it takes no more jobs for now; empty while it does."`
}

type workersOutput struct {
	Body []WorkerBody `nullable:"false"`
}

type deadInput struct {
	Exchange
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"200" doc:"At most so many."`
	Cursor string `query:"cursor" maxLength:"100" doc:"Where to go on, from the Link header of the page before."`
}

func (a *API) registerQueue() {
	register(a, route{
		method: http.MethodGet, path: "/queue/stats", action: policy.Read, id: "getQueueStats", tag: "queue", summary: "Count the jobs",
	}, a.stats)
	register(a, route{
		method: http.MethodGet, path: "/queue/dead", action: policy.Read, id: "listDeadLetters", tag: "queue", summary: "List the dead letters, newest first",
		detail: "Jobs that failed and used up their tries. POST /jobs/{id}/retry replays one.",
	}, a.dead)
	register(a, route{
		method: http.MethodGet, path: "/workers", action: policy.Read, id: "listWorkers", tag: "queue", summary: "List the workers",
	}, a.workers)
}

func (a *API) stats(ctx context.Context, _ *struct{}) (*statsOutput, error) {
	s, err := a.cfg.Manager.QueueStats(ctx)
	if err != nil {
		return nil, err
	}
	b := StatsBody{Counts: map[string]int64{}, DeadLetters: s.DeadLetters, OldestQueuedAt: timeOrNull(s.OldestQueued)}
	for _, state := range job.States() {
		b.Counts[string(state)] = s.Counts[state]
		b.Total += s.Counts[state]
	}
	if !s.OldestQueued.IsZero() {
		age := max(0, a.cfg.Now().Sub(s.OldestQueued).Seconds())
		b.OldestAgeSeconds = &age
	}
	return &statsOutput{Body: b}, nil
}

// dead merges the jobs that failed with those that were lost too often.
func (a *API) dead(ctx context.Context, in *deadInput) (*listJobsOutput, error) {
	before, err := decodeCursor(in.Cursor)
	if err != nil {
		return nil, err
	}
	var jobs []job.Job
	var until int64 // what is older was not read of all
	for _, o := range []job.Outcome{job.OutcomeFailed, job.OutcomeLost} {
		some, err := a.cfg.Manager.Jobs(ctx, store.JobFilter{State: job.Failed, Outcome: o, Before: before, Limit: in.Limit + 1})
		if err != nil {
			return nil, err
		}
		if store.Full(some, store.JobBytes) {
			until = max(until, some[len(some)-1].Seq)
		}
		jobs = append(jobs, some...)
	}
	jobs = slices.DeleteFunc(jobs, func(j job.Job) bool { return j.Seq < until })
	slices.SortFunc(jobs, func(x, y job.Job) int { return cmp.Compare(y.Seq, x.Seq) })
	out := &listJobsOutput{}
	if len(jobs) > in.Limit || until > 0 {
		jobs = jobs[:min(len(jobs), in.Limit)]
		out.Link = nextLink(in.r.URL, "cursor", encodeCursor(jobs[len(jobs)-1].Seq))
	}
	out.Body = jobBodies(slices.DeleteFunc(jobs, func(j job.Job) bool { return j.IsRoot() }))
	return out, nil
}

func (a *API) workers(ctx context.Context, _ *struct{}) (*workersOutput, error) {
	list, err := a.cfg.Manager.Workers(ctx)
	if err != nil {
		return nil, err
	}
	out := &workersOutput{Body: []WorkerBody{}}
	for _, w := range list {
		out.Body = append(out.Body, WorkerBody{
			ID: w.ID, Role: w.Role, Models: append([]string{}, w.Models...), Drivers: append([]string{}, w.Drivers...), Slots: w.Slots,
			Version: w.Version, Connected: w.Connected, RegisteredAt: w.RegisteredAt.UTC(), SeenAt: w.SeenAt.UTC(),
			DriverStatus: driverBodies(w.Proofs), Paused: w.Paused,
		})
	}
	return out, nil
}
