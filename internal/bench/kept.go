package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strconv"
	"text/tabwriter"
	"time"
)

// Kept is how long calls about sandboxes that are kept take over HTTP.
type Kept struct {
	Rows []KeptRow `json:"rows"`
	// Fork is the proportional memory of one of ten forks.
	Fork int64 `json:"fork_bytes,omitempty"`
}

// KeptRow is one call. Missing says why it could not be measured.
type KeptRow struct {
	Name     string        `json:"name"`
	P50, P95 time.Duration `json:",omitempty"`
	Missing  string        `json:"missing,omitempty"`
}

// forks is how many sandboxes one call forks.
const forks = 10

// Kept measures both servers: warm has a pool, cold has none.
func (b *Bench) Kept(ctx context.Context, warm, cold *Server, rounds int) (Kept, error) {
	l := &keptBench{Bench: b, rounds: rounds, times: map[string][]time.Duration{}, missing: map[string]string{}}
	for i := range rounds {
		b.Progress("kept sandboxes, %d of %d", i+1, rounds)
		if err := warm.settle(ctx); err != nil {
			return Kept{}, err
		}
		if err := l.life(ctx, warm, "warm"); err != nil {
			return Kept{}, err
		}
		if err := l.life(ctx, cold, "cold"); err != nil {
			return Kept{}, err
		}
	}
	if err := l.use(ctx, warm); err != nil {
		return Kept{}, err
	}
	return l.result(), nil
}

type keptBench struct {
	*Bench
	rounds  int
	names   []string // in the order in which they came up
	times   map[string][]time.Duration
	missing map[string]string
	fork    int64
}

func (l *keptBench) note(name string, took time.Duration) {
	if l.times[name] == nil {
		l.names = append(l.names, name)
	}
	l.times[name] = append(l.times[name], took)
}

func (l *keptBench) lacks(name string, err error) {
	if l.missing[name] == "" && l.times[name] == nil {
		l.names = append(l.names, name)
	}
	l.missing[name] = err.Error()
}

// sandboxView is what is read of a sandbox.
type sandboxView struct {
	ID string `json:"id"`
}

func (s *Server) post(ctx context.Context, path, body string, answer any) error {
	_, err := call(ctx, s.http, http.MethodPost, s.url+path, body, answer)
	return err
}

func (s *Server) create(ctx context.Context) (string, error) {
	var x sandboxView
	err := s.post(ctx, "/api/v1/sandboxes", "{}", &x)
	return x.ID, err
}

// exec runs a command in a sandbox and waits for its end.
func (s *Server) exec(ctx context.Context, id string, command string) error {
	var e struct {
		Verdict string `json:"verdict"`
	}
	err := s.post(ctx, "/api/v1/sandboxes/"+id+"/execs?wait=60", command, &e)
	if err == nil && e.Verdict != "ok" {
		err = fmt.Errorf("%s ended with the verdict %q", command, e.Verdict)
	}
	return err
}

func (s *Server) end(ctx context.Context, id string) error {
	_, err := call(ctx, s.http, http.MethodDelete, s.url+"/api/v1/sandboxes/"+id, "", nil)
	return err
}

const execTrue, execPython = `{"command":["true"]}`, `{"command":["python3","-c","pass"]}`

// life makes a sandbox, uses it once, and ends it.
func (l *keptBench) life(ctx context.Context, s *Server, how string) error {
	begin := time.Now()
	id, err := s.create(ctx)
	if err != nil {
		return err
	}
	if err := s.exec(ctx, id, execTrue); err != nil {
		return err
	}
	l.note("create → first exec answered, "+how, time.Since(begin))
	if how == "cold" {
		if err := s.exec(ctx, id, execPython); err != nil {
			return err
		}
		l.note("create → interpreter ready, cold", time.Since(begin))
	}
	begin = time.Now()
	if err := s.end(ctx, id); err != nil {
		return err
	}
	l.note("end, "+how, time.Since(begin))
	return nil
}

// use measures calls about one sandbox.
func (l *keptBench) use(ctx context.Context, s *Server) error {
	id, err := s.create(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.end(context.WithoutCancel(ctx), id) }()
	base := "/api/v1/sandboxes/" + id
	const small, large = 1 << 10, 10 << 20
	// One series after the other: what comes right behind a restore pays for the
	// pages that it fetches, and what comes behind megabytes for what they have
	// pushed out of the processor's caches.
	const often = 5 // brief calls are made that much more often
	for i, series := range [][]keptStep{
		{
			{"bare process, true", func() error { return exec.CommandContext(ctx, "true").Run() }},
			{"exec true", func() error { return s.exec(ctx, id, execTrue) }},
			{"write 1 KB", func() error { return s.write(ctx, base, small) }},
			{"read 1 KB", func() error { return s.read(ctx, base, small) }},
		},
		{
			{"write 10 MB", func() error { return s.write(ctx, base, large) }},
			{"read 10 MB", func() error { return s.read(ctx, base, large) }},
		},
		{
			{"freeze", func() error { return s.post(ctx, base+"/pause", `{"mode":"freeze"}`, nil) }},
			{"resume from freeze", func() error { return s.post(ctx, base+"/resume", "", nil) }},
			{"snapshot, files and memory", func() error { return s.snapshot(ctx, base) }},
			{"checkpoint", func() error { return s.post(ctx, base+"/pause", `{"mode":"checkpoint"}`, nil) }},
			{"resume from checkpoint", func() error { return s.post(ctx, base+"/resume", "", nil) }},
			{"exec true, the first after that", func() error { return s.exec(ctx, id, execTrue) }},
		},
	} {
		rounds := l.rounds
		if i == 0 {
			rounds *= often
		}
		for range rounds {
			l.all(series)
		}
	}
	for range max(l.rounds/4, 1) {
		if err := l.forked(ctx, s, base); err != nil {
			l.lacks(forkName, err)
			break
		}
	}
	return nil
}

// keptStep is a call that is measured.
type keptStep struct {
	name string
	do   func() error
}

func (l *keptBench) all(series []keptStep) {
	for _, step := range series {
		begin := time.Now()
		if err := step.do(); err != nil {
			l.lacks(step.name, err)
			continue
		}
		l.note(step.name, time.Since(begin))
	}
}

const forkName = "fork × 10, each"

// forked forks a sandbox ten times and looks what a fork takes.
func (l *keptBench) forked(ctx context.Context, s *Server, base string) error {
	before := s.memory()
	begin := time.Now()
	var made []sandboxView
	if err := s.post(ctx, base+"/fork", `{"count":`+strconv.Itoa(forks)+`}`, &made); err != nil {
		return err
	}
	l.note(forkName, time.Since(begin)/forks)
	l.fork = (s.memory() - before) / forks
	for _, x := range made {
		if err := s.end(ctx, x.ID); err != nil {
			return err
		}
	}
	return nil
}

// memory is that of all sandboxes.
func (s *Server) memory() (sum int64) {
	for _, pid := range s.sandboxes() {
		if n, err := strconv.Atoi(pid); err == nil {
			if bytes, err := proportional(n); err == nil { // else it has just ended
				sum += bytes
			}
		}
	}
	return sum
}

func (s *Server) snapshot(ctx context.Context, base string) error {
	var snap sandboxView
	if err := s.post(ctx, base+"/snapshots", `{"kind":"full"}`, &snap); err != nil {
		return err
	}
	_, err := call(ctx, s.http, http.MethodDelete, s.url+"/api/v1/snapshots/"+snap.ID, "", nil)
	return err
}

func contentURL(base string, size int) string {
	return base + "/files/content?path=" + url.QueryEscape(fmt.Sprintf("/workspace/%d", size))
}

func (s *Server) write(ctx context.Context, base string, size int) error {
	data := make([]byte, size)
	_, _ = rand.Read(data) // never fails
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, s.url+contentURL(base, size), bytes.NewReader(data))
	if err != nil {
		return err
	}
	return s.bytes(req, -1)
}

func (s *Server) read(ctx context.Context, base string, size int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+contentURL(base, size), nil)
	if err != nil {
		return err
	}
	return s.bytes(req, int64(size))
}

// bytes makes a request whose answer has so many bytes; -1 is any.
func (s *Server) bytes(req *http.Request, want int64) error {
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && (resp.StatusCode >= http.StatusMultipleChoices || want >= 0 && n != want) {
		err = fmt.Errorf("%s %s answered %s with %d bytes", req.Method, req.URL.Path, resp.Status, n)
	}
	return err
}

func (l *keptBench) result() (r Kept) {
	for _, name := range l.names {
		row := KeptRow{Name: name, Missing: l.missing[name]}
		if times := l.times[name]; len(times) > 0 {
			row.P50, row.P95, row.Missing = percentile(times, 50), percentile(times, 95), ""
		}
		r.Rows = append(r.Rows, row)
	}
	r.Fork = l.fork
	return r
}

// Print writes the result as a person reads it.
func (l Kept) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "kept sandboxes, over HTTP\tp50\tp95\t")
	for _, r := range l.Rows {
		if r.Missing == "" {
			fmt.Fprintf(t, "%s\t%s\t%s\t\n", r.Name, round(r.P50), round(r.P95))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if l.Fork > 0 {
		fmt.Fprintf(w, "memory per fork: %.1f MiB\n", float64(l.Fork)/(1<<20))
	}
	for _, r := range l.Rows {
		if r.Missing != "" {
			fmt.Fprintf(w, "left out: %s: %s\n", r.Name, r.Missing)
		}
	}
	return nil
}
