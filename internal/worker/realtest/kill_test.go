// Package realtest keeps real sandboxes at a real worker process, and kills it.
package realtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/dispatch/wire"
	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/driver/gvisor"
	"github.com/aurea-dev/aurea/internal/driver/gvisor/gvisortest"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// What the worker process is told.
const (
	managerVariable = "REALTEST_MANAGER"
	folderVariable  = "REALTEST_FOLDER"
	imageVariable   = "REALTEST_IMAGE"
	binsVariable    = "REALTEST_BINARIES"
)

var (
	binaries string // or empty where no sandbox can be made
	images   gvisortest.Images
)

func TestMain(m *testing.M) {
	if os.Getenv(managerVariable) != "" {
		if err := workerMain(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	if os.Geteuid() == 0 {
		dir, err := os.MkdirTemp("", "aurea-bin")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		err = drivertest.Build(dir, "cmd/aurea-sentry", "cmd/aurea-guest")
		if err == nil {
			images, err = gvisortest.Make(dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		binaries = dir
	}
	return m.Run()
}

func openDriver(ctx context.Context, folder, bins, image string) (*gvisor.Driver, error) {
	return gvisor.New(ctx, gvisor.Config{
		StateDir: filepath.Join(folder, "driver"), Sentry: filepath.Join(bins, "aurea-sentry"), Guest: filepath.Join(bins, "aurea-guest"),
		Images: gvisortest.Images{Root: image}, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
}

// workerMain is the worker process: it works until it is told to stop, or
// killed.
func workerMain() error {
	folder, bins := os.Getenv(folderVariable), os.Getenv(binsVariable)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	d, err := openDriver(ctx, folder, bins, os.Getenv(imageVariable))
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // the process ends
	client, err := wire.NewClient(os.Getenv(managerVariable), "", wire.Options{Log: log})
	if err != nil {
		return err
	}
	w, err := worker.New(worker.Config{
		Manager: client, Drivers: map[string]sandbox.Driver{"gvisor": d}, Driver: "gvisor", Base: filepath.Join(folder, "base"), WorkerID: "w",
		Version: "test", Slots: 4, Image: "host", Logger: log,
		Limits: sandbox.Limits{MilliCPU: 1000, Memory: 128 << 20, Processes: 64, Disk: 64 << 20, OpenFiles: 1024},
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// stand is a manager in memory, behind a socket, and a worker process.
type stand struct {
	t      testing.TB
	ref    *dispatchtest.Reference
	told   chan string // gets the name of each exec whose end was told
	url    string
	folder string
	cmd    *exec.Cmd
}

func setUp(t testing.TB) *stand {
	t.Helper()
	if binaries == "" {
		const reason = "making gVisor sandboxes needs root; this run leaves their tests out"
		if os.Getenv("CI") == "true" {
			t.Fatal(reason)
		}
		t.Skip(reason)
	}
	folder, err := os.MkdirTemp("", "real")
	if err != nil {
		t.Fatal(err)
	}
	ref := dispatchtest.NewReference()
	told := make(chan string, 1024)
	door := wire.Handler(hearing{ref, told}, slog.New(slog.DiscardHandler))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		door.ServeHTTP(w, r.WithContext(policy.With(r.Context(), policy.LocalCaller())))
	}))
	s := &stand{t: t, ref: ref, told: told, url: srv.URL, folder: folder}
	t.Cleanup(func() {
		s.kill()
		s.sweep() // also where the test has failed half-way
		door.Close()
		srv.Close()
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	s.start()
	return s
}

// hearing is a manager that says what it is told.
type hearing struct {
	*dispatchtest.Reference
	told chan string
}

// Tell takes ends.
func (h hearing) Tell(ctx context.Context, req dispatch.TellRequest) error {
	err := h.Reference.Tell(ctx, req)
	for _, e := range req.Execs {
		select {
		case h.told <- e.ID:
		default: // nobody listens
		}
	}
	return err
}

// BenchmarkExec is a command that does nothing, from its order until its end was
// told, over a socket.
func BenchmarkExec(b *testing.B) {
	s := setUp(b)
	host := s.host()
	if _, err := host.OpenSandbox(b.Context(), live.Order{ID: "box"}); err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n++
		if err := host.StartExec(b.Context(), live.Command{ID: fmt.Sprint("e", n), Sandbox: "box", Command: []string{"true"}}); err != nil {
			b.Fatal(err)
		}
		<-s.told
	}
	b.StopTimer()
	if err := host.EndSandbox(b.Context(), live.Closing{ID: "box", Outcome: sandbox.OutcomeDone}); err != nil {
		b.Error(err)
	}
	s.end()
}

// start starts the worker process and waits for its stream.
func (s *stand) start() {
	s.t.Helper()
	s.cmd = exec.Command(os.Args[0]) //nolint:gosec // this test itself
	s.cmd.Env = append(os.Environ(), managerVariable+"="+s.url, folderVariable+"="+s.folder, imageVariable+"="+images.Root, binsVariable+"="+binaries)
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.host()
}

func (s *stand) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // it was killed
	s.cmd = nil
	s.ref.Restart()
}

// sweep destroys what a worker that was killed has left.
func (s *stand) sweep() {
	d, err := openDriver(context.Background(), s.folder, binaries, images.Root)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer d.Close() //nolint:errcheck // the test is over
	left, err := d.List(context.Background())
	for _, h := range left {
		err = errors.Join(err, d.Destroy(context.Background(), h))
	}
	if err != nil {
		s.t.Error(err)
	}
}

// end stops the worker and demands that it leaves nothing.
func (s *stand) end() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Error(err)
	}
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the worker ended with %v", err)
	}
	s.cmd = nil
	if left, err := os.ReadDir(filepath.Join(s.folder, "base", "boxes")); err != nil || len(left) > 0 {
		s.t.Errorf("%d folders of sandboxes are left, %v", len(left), err)
	}
}

// host waits for the worker's stream.
func (s *stand) host() dispatch.Host {
	s.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(2 * time.Minute)
	for {
		if rc := s.ref.Receiver("w"); rc != nil {
			return rc
		}
		select {
		case <-tick.C:
		case <-limit:
			s.t.Fatal("gave up waiting for the worker")
		}
	}
}

// reading is what was read of an exec so far.
type reading struct {
	box  string
	mu   sync.Mutex
	data []byte
	came chan struct{} // gets a token when something came
}

func (r *reading) size() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(len(r.data))
}

// follow reads on until the end, or until the stream breaks.
func (r *reading) follow(ctx context.Context, h dispatch.Host) error {
	return h.FollowExec(ctx, live.Follow{Sandbox: r.box, Exec: "count-" + r.box, From: sandbox.Offsets{Stdout: r.size()}}, func(c dispatch.Chunk) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if c.Offset != int64(len(r.data)) {
			return fmt.Errorf("a piece at %d, expected at %d", c.Offset, len(r.data))
		}
		r.data = append(r.data, c.Data...)
		select {
		case r.came <- struct{}{}:
		default:
		}
		return nil
	})
}

// A worker is killed while five sandboxes print, three times: every byte is read
// exactly once, and so it is told.
func TestKilledWhileSandboxesPrint(t *testing.T) {
	const boxes = 5
	s := setUp(t)
	// It prints until it is told to stop, and then says so.
	const script = `i=0; while [ ! -e stop ]; do echo line $i; i=$((i+1)); if [ $((i%50)) = 0 ]; then sleep 0.05; fi; done; echo end`
	all := make([]*reading, boxes)
	for i := range all {
		all[i] = &reading{box: fmt.Sprint("box", i), came: make(chan struct{}, 1)}
		if _, err := s.host().OpenSandbox(t.Context(), live.Order{ID: all[i].box}); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range all {
		if err := s.host().StartExec(t.Context(), live.Command{ID: "count-" + r.box, Sandbox: r.box, Command: []string{"sh", "-c", script}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		s.readSome(all)
		s.kill()
		s.start()
	}
	for _, r := range all {
		if err := s.host().StartExec(t.Context(), live.Command{ID: "stop-" + r.box, Sandbox: r.box, Command: []string{"touch", "stop"}}); err != nil {
			t.Error(err)
		}
		if err := r.follow(t.Context(), s.host()); err != nil {
			t.Errorf("%s: %v", r.box, err)
		}
		r.check(t)
	}
	for _, r := range all {
		if err := s.host().EndSandbox(t.Context(), live.Closing{ID: r.box, Outcome: sandbox.OutcomeDone}); err != nil {
			t.Error(err)
		}
	}
	s.end()
	for _, r := range all {
		if end, told := s.ref.SandboxEnd(r.box); !told || end.Outcome != sandbox.OutcomeDone {
			t.Errorf("%s: told %+v, %v", r.box, end, told)
		}
		e, _ := s.ref.ExecEnd("count-" + r.box)
		if told, _ := s.ref.Blob(e.Result.Stdout.SHA256); e.Result.Verdict != sandbox.OK || string(told) != string(r.data) {
			t.Errorf("%s: told %+v, %d bytes of %d", r.box, e.Result, len(told), len(r.data))
		}
	}
}

// readSome reads until each has printed more, and then hangs up.
func (s *stand) readSome(all []*reading) {
	s.t.Helper()
	ctx, cancel := context.WithCancelCause(s.t.Context())
	host := s.host()
	var readers sync.WaitGroup
	for _, r := range all {
		readers.Go(func() { _ = r.follow(ctx, host) })
	}
	for _, r := range all {
		for range 3 {
			select {
			case <-r.came:
			case <-time.After(2 * time.Minute):
				s.t.Fatalf("%s prints nothing", r.box)
			}
		}
	}
	s.kill()
	cancel(errors.New("the worker is dead"))
	readers.Wait()
}

// check demands every line, once.
func (r *reading) check(t *testing.T) {
	t.Helper()
	all := strings.Split(string(r.data), "\n")
	if len(all) < 3 || all[len(all)-1] != "" || all[len(all)-2] != "end" {
		t.Fatalf("%s: %d lines were read, the last of them %q", r.box, len(all), all[max(len(all)-3, 0):])
	}
	for i, got := range all[:len(all)-2] {
		if got != fmt.Sprint("line ", i) {
			t.Fatalf("%s: line %d is %q", r.box, i, got)
		}
	}
	t.Logf("%s: %d lines", r.box, len(all)-2)
}
