package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Queue is what `aurea bench queue` found.
type Queue struct {
	Rows  []Throughput  `json:"throughput"`
	Calls []Call        `json:"calls"`
	Start []StartSample `json:"submit_to_start"`
}

// Throughput is jobs per second from submission to the recorded end.
type Throughput struct {
	Events    int     `json:"stored_events"`
	Snapshots bool    `json:"snapshots"`
	Clients   int     `json:"clients"`
	Jobs      int     `json:"jobs"`
	PerSecond float64 `json:"jobs_per_second"`
}

// StartSample is how long an unloaded queue takes from the submission of a job
// to its start in the worker.
type StartSample struct {
	Events int           `json:"stored_events"`
	P50    time.Duration `json:"p50_ns"`
	P99    time.Duration `json:"p99_ns"`
}

// Call is the p50 of one hot call with little and with much history.
type Call struct {
	Name  string        `json:"call"`
	Few   time.Duration `json:"p50_few_ns"`
	Many  time.Duration `json:"p50_many_ns"`
	Ratio float64       `json:"ratio"`
}

// Sizes bounds a run, so that a quick look costs seconds.
type Sizes struct {
	Few, Many int // stored events
	Jobs      int // per row of throughput
	Samples   int // per latency
}

// Queue measures the queue with little and with much stored history.
func (b *Bench) Queue(ctx context.Context, s Sizes) (Queue, error) {
	var q Queue
	// The folders go at the end: a file system may be slow to make files for
	// half a minute after many were removed (ext4 does not use their numbers
	// again so soon, and passes over each).
	data, remove, err := folder()
	if err != nil {
		return q, err
	}
	defer remove()
	hot := map[string][]time.Duration{}
	for _, events := range []int{s.Few, s.Many} {
		for _, snapshots := range []bool{true, false} {
			if err := b.measure(ctx, &q, s, filepath.Join(data, strconv.Itoa(len(q.Rows))), events, snapshots, hot); err != nil {
				return q, err
			}
		}
	}
	for _, name := range calls() {
		p := hot[name]
		if len(p) == 2 {
			q.Calls = append(q.Calls, Call{Name: name, Few: p[0], Many: p[1], Ratio: float64(p[1]) / float64(p[0])})
		}
	}
	return q, nil
}

// measure runs one rig over data: throughput at 1, 4 and 16 clients, and, once
// per amount of history, the latencies.
func (b *Bench) measure(ctx context.Context, q *Queue, s Sizes, data string, events int, snapshots bool, hot map[string][]time.Duration) error {
	b.Progress("storing %d events", events)
	if err := b.Seed(ctx, data, events); err != nil {
		return fmt.Errorf("store events: %w", err)
	}
	r, err := b.setUp(ctx, data, snapshots)
	if err != nil {
		return err
	}
	defer r.tearDown()
	if err := r.warm(ctx); err != nil {
		return err
	}
	if snapshots {
		b.Progress("measuring latencies with %d events", events)
		if err := r.latencies(ctx, q, s, events, hot); err != nil {
			return err
		}
	}
	for _, clients := range []int{1, 4, 16} {
		b.Progress("%d jobs from %d clients, %d events, snapshots %t", s.Jobs, clients, events, snapshots)
		rate, err := r.throughput(ctx, clients, s.Jobs)
		if err != nil {
			return err
		}
		q.Rows = append(q.Rows, Throughput{Events: events, Snapshots: snapshots, Clients: clients, Jobs: s.Jobs, PerSecond: rate})
	}
	return nil
}

// warm puts a few jobs through, so that no measurement pays for the first.
func (r *rig) warm(ctx context.Context) error {
	_, err := r.throughput(ctx, 2, 50)
	return err
}

// throughput submits jobs from several clients, each as fast as it is
// answered, and returns the rate until the last has COMPLETED.
func (r *rig) throughput(ctx context.Context, clients, jobs int) (float64, error) {
	before, err := r.completed(ctx)
	if err != nil {
		return 0, err
	}
	c := caller()
	defer c.CloseIdleConnections()
	begin := time.Now()
	var next atomic.Int64
	var group sync.WaitGroup
	failed := make(chan error, clients)
	for range clients {
		group.Go(func() {
			for next.Add(1) <= int64(jobs) {
				if _, _, err := r.submit(ctx, c); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		return 0, err
	default:
	}
	if err := r.awaitCompleted(ctx, before+int64(jobs)); err != nil {
		return 0, err
	}
	return float64(jobs) / time.Since(begin).Seconds(), nil
}

func (r *rig) completed(ctx context.Context) (int64, error) {
	var s statsView
	_, err := r.get(ctx, "/api/v1/queue/stats", &s)
	return s.Counts["COMPLETED"], err
}

func (r *rig) awaitCompleted(ctx context.Context, want int64) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		have, err := r.completed(ctx)
		if err != nil || have >= want {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// latencies measures an unloaded queue, one job after the other.
func (r *rig) latencies(ctx context.Context, q *Queue, s Sizes, events int, hot map[string][]time.Duration) error {
	c := caller()
	defer c.CloseIdleConnections()
	var starts []time.Duration
	samples := map[string][]time.Duration{}
	for range s.Samples {
		begin := time.Now()
		id, took, err := r.submit(ctx, c)
		if err != nil {
			return err
		}
		samples["POST /prds"] = append(samples["POST /prds"], took)
		if err := r.awaitJob(ctx, id); err != nil {
			return err
		}
		started, err := r.hotCalls(ctx, id, samples)
		if err != nil {
			return err
		}
		starts = append(starts, started.Sub(begin))
	}
	q.Start = append(q.Start, StartSample{Events: events, P50: percentile(starts, 50), P99: percentile(starts, 99)})
	for name, ds := range samples {
		hot[name] = append(hot[name], percentile(ds, 50))
	}
	return nil
}

// calls lists the hot calls in the order of printing.
func calls() []string {
	return []string{"POST /prds", "GET /jobs/{id}", "GET /jobs/{id}/events", "GET /jobs?status=ASSIGNED", "GET /jobs?limit=50", "GET /api/v1/events?job_id="}
}

// hotCalls times what clients ask again and again, and returns when the job
// was started in the worker.
func (r *rig) hotCalls(ctx context.Context, id string, samples map[string][]time.Duration) (time.Time, error) {
	var events []eventView
	var seen []struct {
		Seq int64 `json:"seq"`
	}
	for name, ask := range map[string]struct {
		path   string
		answer any
	}{
		"GET /jobs/{id}":             {"/jobs/" + id, nil},
		"GET /jobs/{id}/events":      {"/jobs/" + id + "/events", &events},
		"GET /jobs?status=ASSIGNED":  {"/jobs?status=ASSIGNED", nil},
		"GET /jobs?limit=50":         {"/jobs?limit=50", nil},
		"GET /api/v1/events?job_id=": {"/api/v1/events?limit=10&job_id=" + id, &seen},
	} {
		took, err := r.get(ctx, ask.path, ask.answer)
		if err != nil {
			return time.Time{}, err
		}
		samples[name] = append(samples[name], took)
	}
	for _, e := range events {
		if e.Type == "job.started" {
			return e.At, nil
		}
	}
	return time.Time{}, errors.New("the job has no job.started event")
}

func (r *rig) awaitJob(ctx context.Context, id string) error {
	for {
		var j jobView
		if _, err := r.get(ctx, "/jobs/"+id, &j); err != nil {
			return err
		}
		switch j.Status {
		case "COMPLETED":
			return nil
		case "FAILED", "ESCALATED":
			return fmt.Errorf("job %s ended %s", id, j.Status)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
