package worker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/driver/fake"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// line is the line between worker and manager: it counts calls and breaks on
// demand.
type line struct {
	dispatch.Manager
	away   atomic.Bool                             // calls do not arrive
	mute   atomic.Bool                             // calls arrive, answers are lost
	spoils func(dispatch.FinishRequest) error      // judges a Finish before it arrives
	leased func([]dispatch.Lease) []dispatch.Lease // changes what Lease answers
	reg    atomic.Int64
	report atomic.Int64
	finish atomic.Int64
	tells  atomic.Int64
	at     func(string) // a place where the worker may be killed
}

var errAway = fault.New(fault.Unavailable, "the manager is away")

func (l *line) pass(do func() error) error {
	l.reached("before a call")
	if l.away.Load() {
		return errAway
	}
	err := do()
	l.reached("after a call")
	if err == nil && (l.mute.Load() || l.away.Load()) {
		return errAway
	}
	return err
}

func (l *line) reached(place string) {
	if l.at != nil {
		l.at(place)
	}
}

func (l *line) Register(ctx context.Context, r dispatch.Registration) (w dispatch.Welcome, err error) {
	l.reg.Add(1)
	err = l.pass(func() (err error) { w, err = l.Manager.Register(ctx, r); return err })
	return w, err
}

func (l *line) Lease(ctx context.Context, r dispatch.LeaseRequest) (ls []dispatch.Lease, err error) {
	err = l.pass(func() (err error) { ls, err = l.Manager.Lease(ctx, r); return err })
	if err != nil {
		return nil, err
	}
	if l.leased != nil {
		ls = l.leased(ls)
	}
	return ls, nil
}

func (l *line) Extend(ctx context.Context, r dispatch.ExtendRequest) (a dispatch.ExtendAnswer, err error) {
	err = l.pass(func() (err error) { a, err = l.Manager.Extend(ctx, r); return err })
	return a, err
}

func (l *line) Report(ctx context.Context, r dispatch.ReportRequest) (no dispatch.Refusals, err error) {
	l.report.Add(1)
	err = l.pass(func() (err error) { no, err = l.Manager.Report(ctx, r); return err })
	return no, err
}

func (l *line) Finish(ctx context.Context, r dispatch.FinishRequest) (no dispatch.Refusals, err error) {
	l.finish.Add(1)
	if l.spoils != nil {
		if err := l.spoils(r); err != nil {
			return no, err
		}
	}
	err = l.pass(func() (err error) { no, err = l.Manager.Finish(ctx, r); return err })
	return no, err
}

func (l *line) Tell(ctx context.Context, r dispatch.TellRequest) error {
	l.tells.Add(1)
	return l.pass(func() error { return l.Manager.Tell(ctx, r) })
}

func (l *line) PutBlob(ctx context.Context, s, sum string, n int64, r io.Reader) error {
	return l.pass(func() error { return l.Manager.PutBlob(ctx, s, sum, n, r) })
}

func (l *line) Attend(ctx context.Context, session string, rc dispatch.Receiver) error {
	if l.away.Load() {
		return errAway
	}
	return l.Manager.Attend(ctx, session, rc)
}

// stand is a worker on a fake driver before the reference manager.
type stand struct {
	t      *testing.T
	ref    *dispatchtest.Reference
	line   *line
	driver sandbox.Driver
	base   string
	state  string // of the driver, where it has a folder
	stop   context.CancelCauseFunc
	done   chan error
	dead   []*stand // what was killed before it
}

// setUp prepares a worker; change may alter its configuration before start.
func setUp(t *testing.T, change func(*worker.Config)) *stand {
	t.Helper()
	driver, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ref := dispatchtest.NewReference()
	s := &stand{t: t, ref: ref, line: &line{Manager: ref}, driver: driver, base: t.TempDir()}
	s.start(change)
	return s
}

func (s *stand) start(change func(*worker.Config)) {
	s.t.Helper()
	c := worker.Config{
		Manager: s.line, Drivers: map[string]sandbox.Driver{"fake": s.driver}, Driver: "fake",
		Base: s.base, WorkerID: "worker_default", Version: "test",
	}
	if change != nil {
		change(&c)
	}
	w, err := worker.New(c)
	if err != nil {
		s.t.Fatal(err)
	}
	s.driver = c.Drivers["fake"]
	ctx, stop := context.WithCancelCause(s.t.Context())
	s.stop, s.done = stop, make(chan error, 1)
	go func() { s.done <- w.Run(ctx) }()
}

// end stops the worker and demands a clean drain that left no sandbox.
func (s *stand) end() {
	s.t.Helper()
	s.stop(errors.New("the test is over"))
	if err := <-s.done; err != nil {
		s.t.Errorf("Run returned %v", err)
	}
	s.noSandboxes()
}

func (s *stand) noSandboxes() {
	s.t.Helper()
	left, err := s.driver.List(context.Background())
	if err != nil || len(left) != 0 {
		s.t.Errorf("%d sandboxes are left, %v", len(left), err)
	}
}

// story runs a test in virtual time.
func story(t *testing.T, change func(*worker.Config), tell func(t *testing.T, s *stand)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setUp(t, change)
		synctest.Wait()
		tell(t, s)
		s.end()
	})
}

func (s *stand) submit(payload string) string { return s.ref.Submit(json.RawMessage(payload)) }

// pass lets time pass until nothing more happens at its end.
func pass(d time.Duration) {
	<-time.After(d) // virtual
	synctest.Wait()
}

type details struct {
	Snapshot    string `json:"snapshot"`
	SHA256      string `json:"snapshot_sha256"`
	Bytes       int64  `json:"snapshot_bytes"`
	TreeDigest  string `json:"tree_digest"`
	Verdict     string `json:"verdict"`
	ExitCode    int    `json:"exit_code"`
	StdoutBytes int64  `json:"stdout_bytes"`
	Error       string `json:"error"`
}

// result demands that exactly one result was accepted.
func (s *stand) result(id string) (dispatch.Result, details) {
	s.t.Helper()
	all := s.ref.Accepted(id)
	if len(all) != 1 {
		s.t.Fatalf("%d results of %s were accepted, want 1", len(all), id)
	}
	var d details
	if err := json.Unmarshal(all[0].Details, &d); err != nil {
		s.t.Fatal(err)
	}
	return all[0], d
}

// types lists the events of a job and demands that their ordinals count up.
func (s *stand) types(id string) []event.Type {
	s.t.Helper()
	var all []event.Type
	for i, h := range s.ref.Events(id) {
		if h.N != int64(i+1) {
			s.t.Errorf("event %d has the ordinal %d", i, h.N)
		}
		all = append(all, h.Type)
	}
	return all
}

func (s *stand) workspace(id string) string { return filepath.Join(s.base, "workspaces", id) }

// files reads a snapshot.
func (s *stand) files(path string) map[string]string {
	s.t.Helper()
	f, err := os.Open(path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	got := map[string]string{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			s.t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			s.t.Fatal(err)
		}
		if got[h.Name] = string(text); h.Typeflag == tar.TypeSymlink {
			got[h.Name] = "-> " + h.Linkname
		}
	}
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

func inline(res dispatch.Result, name string) (string, bool) {
	for _, a := range res.Artifacts {
		if a.Name == name {
			data, ok := res.Inline[a.SHA256]
			return string(data), ok
		}
	}
	return "", false
}

func names(res dispatch.Result) []string {
	var all []string
	for _, a := range res.Artifacts {
		all = append(all, a.Name)
	}
	return all
}

// counting is a driver that knows how many sandboxes lived at a time, and can
// swap what Get yields.
type counting struct {
	sandbox.Driver
	hostile []byte

	mu        sync.Mutex
	now, most int
	// The memory limits of those that live, together, and the most of it.
	memory     map[string]int64
	mostMemory int64
}

type countedBox struct {
	sandbox.Box
	hostile []byte
}

func (c *counting) Create(ctx context.Context, spec sandbox.Spec, report func(sandbox.Handle) error) (sandbox.Box, error) {
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	if c.memory == nil {
		c.memory = map[string]int64{}
	}
	c.memory[spec.ID] = spec.Limits.Memory
	var sum int64
	for _, m := range c.memory {
		sum += m
	}
	c.mostMemory = max(c.mostMemory, sum)
	c.mu.Unlock()
	box, err := c.Driver.Create(ctx, spec, report)
	if err != nil || c.hostile == nil {
		return box, err
	}
	return countedBox{box, c.hostile}, nil
}

func (c *counting) Destroy(ctx context.Context, h sandbox.Handle) error {
	err := c.Driver.Destroy(ctx, h)
	c.mu.Lock()
	c.now--
	delete(c.memory, h.ID)
	c.mu.Unlock()
	return err
}

func (b countedBox) Get(_ context.Context, _ string, w io.Writer) error {
	_, err := w.Write(b.hostile)
	return err
}

func tarOf(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(bytes.Repeat([]byte("x"), int(h.Size))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func payload(action string, rest map[string]any) string {
	doc := map[string]any{"action": action}
	maps.Copy(doc, rest)
	raw, _ := json.Marshal(doc) //nolint:errchkjson // plain values
	return string(raw)
}
