package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
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
	Store     string  `json:"store"`
	Events    int     `json:"stored_events"`
	Snapshots bool    `json:"snapshots"`
	Clients   int     `json:"clients"`
	Jobs      int     `json:"jobs"`
	PerSecond float64 `json:"jobs_per_second"`
	// ManagerCPU and WorkerCPU are what a job costs each of the processes.
	ManagerCPU time.Duration `json:"manager_cpu_ns_per_job"`
	WorkerCPU  time.Duration `json:"worker_cpu_ns_per_job"`
}

// StartSample is how long an unloaded queue takes from the submission of a job
// to its start in the worker.
type StartSample struct {
	Store  string        `json:"store"`
	Events int           `json:"stored_events"`
	P50    time.Duration `json:"p50_ns"`
	P99    time.Duration `json:"p99_ns"`
}

// Call is the p50 of one hot call with little and with much history.
type Call struct {
	Store string        `json:"store"`
	Name  string        `json:"call"`
	Few   time.Duration `json:"p50_few_ns"`
	Many  time.Duration `json:"p50_many_ns"`
	Ratio float64       `json:"ratio"`
}

// Sizes bounds a run, so that a quick look costs seconds.
type Sizes struct {
	Few, Many int    // stored events
	Jobs      int    // per row of throughput
	Samples   int    // per latency
	Below     string // where the data lies; "" is with the temporary files
	Clients   []int
	Snapshots []bool
	Stores    []string
}

// Queue measures the queue with little and with much stored history, side by
// side: what the machine does meanwhile meets both.
func (b *Bench) Queue(ctx context.Context, s Sizes) (Queue, error) {
	var q Queue
	// The folders go at the end: a file system may be slow to make files for
	// half a minute after many were removed (ext4 does not use their numbers
	// again so soon, and passes over each).
	data, remove, err := folder(s.Below)
	if err != nil {
		return q, err
	}
	defer remove()
	for i, snapshots := range s.Snapshots {
		if err := b.measure(ctx, &q, s, filepath.Join(data, strconv.Itoa(i)), snapshots, i == 0); err != nil {
			return q, err
		}
	}
	return q, nil
}

// measure runs a rig with little and one with much history: throughput for
// each number of clients, and the latencies if they are asked for.
func (b *Bench) measure(ctx context.Context, q *Queue, s Sizes, data string, snapshots, latencies bool) error {
	var rigs []*rig
	for _, store := range s.Stores {
		for _, events := range []int{s.Few, s.Many} {
			b.Progress("storing %d events in %s", events, store)
			folder := filepath.Join(data, store, strconv.Itoa(events))
			env, err := b.Seed(ctx, store, folder, events)
			if err != nil {
				return fmt.Errorf("store events: %w", err)
			}
			r, err := b.setUp(ctx, folder, env, []string{"AUREA_DRIVER=fake", "AUREA_CONCURRENCY=16", "AUREA_SNAPSHOTS=" + onOff(snapshots)})
			if err != nil {
				return err
			}
			defer r.tearDown()
			r.store, r.events = store, events
			if err := r.warm(ctx); err != nil {
				return err
			}
			rigs = append(rigs, r)
		}
	}
	if latencies {
		b.Progress("measuring latencies")
		if err := q.latencies(ctx, s, rigs); err != nil {
			return err
		}
	}
	for _, clients := range s.Clients {
		for _, r := range rigs {
			b.Progress("%d jobs from %d clients, %s, %d events, snapshots %s", s.Jobs, clients, r.store, r.events, onOff(snapshots))
			row := Throughput{Store: r.store, Events: r.events, Snapshots: snapshots, Clients: clients, Jobs: s.Jobs}
			if err := r.row(ctx, &row); err != nil {
				return err
			}
			q.Rows = append(q.Rows, row)
		}
	}
	return nil
}

// row measures one row of throughput.
func (r *rig) row(ctx context.Context, row *Throughput) (err error) {
	before := r.cpu()
	if row.PerSecond, err = r.throughput(ctx, row.Clients, row.Jobs); err != nil {
		return err
	}
	after, jobs := r.cpu(), time.Duration(row.Jobs)
	row.ManagerCPU, row.WorkerCPU = (after[0]-before[0])/jobs, (after[1]-before[1])/jobs
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
	err = together(clients, func() error {
		for next.Add(1) <= int64(jobs) {
			if _, _, err := r.submit(ctx, c); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
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
	tick := time.NewTicker(25 * time.Millisecond) // asking costs the manager too
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

// latencies measures unloaded queues, one job after the other, in each rig by
// turns.
func (q *Queue) latencies(ctx context.Context, s Sizes, rigs []*rig) error {
	c := caller()
	defer c.CloseIdleConnections()
	starts := make([][]time.Duration, len(rigs))
	samples := make([]map[string][]time.Duration, len(rigs))
	for n := range s.Samples * len(rigs) {
		i := n % len(rigs)
		if samples[i] == nil {
			samples[i] = map[string][]time.Duration{}
		}
		start, err := rigs[i].sample(ctx, c, samples[i])
		if err != nil {
			return err
		}
		starts[i] = append(starts[i], start)
	}
	for i, r := range rigs {
		q.Start = append(q.Start, StartSample{Store: r.store, Events: r.events, P50: percentile(starts[i], 50), P99: percentile(starts[i], 99)})
	}
	for i := 0; i+1 < len(rigs); i += 2 { // little and much history of one store
		for _, name := range calls() {
			few, many := percentile(samples[i][name], 50), percentile(samples[i+1][name], 50)
			q.Calls = append(q.Calls, Call{Store: rigs[i].store, Name: name, Few: few, Many: many, Ratio: float64(many) / float64(few)})
		}
	}
	return nil
}

// sample takes one job through, times the hot calls, and returns how long the
// job took to start.
func (r *rig) sample(ctx context.Context, c *http.Client, samples map[string][]time.Duration) (time.Duration, error) {
	begin := time.Now()
	id, took, err := r.submit(ctx, c)
	if err != nil {
		return 0, err
	}
	samples["POST /prds"] = append(samples["POST /prds"], took)
	if err := r.awaitJob(ctx, id); err != nil {
		return 0, err
	}
	started, err := r.hotCalls(ctx, id, samples)
	return started.Sub(begin), err
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
