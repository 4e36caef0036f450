package worker_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/driver/fake"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

func TestDrainLetsJobsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setUp(t, nil)
		short := s.submit(payload("exec", map[string]any{"command": []string{"sleep", "10"}}))
		long := s.submit(payload("exec", map[string]any{"command": []string{"sleep", "100"}}))
		pass(time.Second)
		stopped := time.Now()
		s.stop(errors.New("enough"))
		synctest.Wait()
		late := s.submit(`{}`)
		pass(15 * time.Second)
		if res, _ := s.result(short); !res.Success {
			t.Errorf("%s", res.Details)
		}
		if err := <-s.done; err != nil {
			t.Error(err)
		}
		if took := time.Since(stopped); took > 31*time.Second {
			t.Errorf("the drain took %s", took)
		}
		s.noSandboxes()
		if len(s.ref.Accepted(long)) != 0 || len(s.ref.Accepted(late)) != 0 {
			t.Error("a job that was given back has a result")
		}
		s.start(nil) // another life finds both in the queue
		pass(3 * time.Minute)
		if res, _ := s.result(long); !res.Success || res.Record.Attempt != 2 {
			t.Errorf("attempt %d", res.Record.Attempt)
		}
		s.result(late)
		s.end()
	})
}

func TestStopWhileTheManagerIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setUp(t, nil)
		s.line.away.Store(true)
		pass(time.Minute)
		s.end() // before it ever registered
		s.line.away.Store(false)
		s.start(nil)
		id := s.submit(payload("exec", map[string]any{"command": []string{"sleep", "5"}}))
		pass(time.Second)
		s.line.away.Store(true)
		s.end() // with a result that nobody takes
		if len(s.ref.Accepted(id)) != 0 {
			t.Error("a result arrived at a manager that was away")
		}
	})
}

func TestSecondWorkerOnOneFolder(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		w, err := worker.New(worker.Config{
			Manager: s.ref, Drivers: map[string]sandbox.Driver{"fake": s.driver}, Driver: "fake", Base: s.base, WorkerID: "other",
		})
		if err != nil {
			t.Fatal(err)
		}
		err = w.Run(t.Context())
		if !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != "base_taken" || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
			t.Errorf("got %v", err)
		}
	})
}

func TestTakenIDIsAFinalError(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		w, err := worker.New(worker.Config{
			Manager: s.ref, Drivers: map[string]sandbox.Driver{"fake": s.driver}, Driver: "fake",
			Base: t.TempDir(), WorkerID: "worker_default",
		})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err = w.Run(t.Context())
		if fault.CodeOf(err) != "worker_id_taken" || !strings.Contains(err.Error(), "worker_default") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took < 10*time.Second || took > 20*time.Second {
			t.Errorf("it gave up after %s", took)
		}
	})
}

// A worker that loses its id to another stops its work and says so.
func TestReplacedWorkerStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setUp(t, nil)
		s.submit(payload("exec", map[string]any{"command": []string{"sleep", "500"}}))
		pass(time.Second)
		s.line.away.Store(true)
		s.ref.Restart()
		synctest.Wait()
		other := &stand{t: t, ref: s.ref, line: &line{Manager: s.ref}, driver: s.driver, base: t.TempDir()}
		// Its sweep would take the other's sandbox; drivers are not shared in life.
		own, err := fake.New(fake.Options{})
		if err != nil {
			t.Fatal(err)
		}
		other.start(func(c *worker.Config) { c.Drivers = map[string]sandbox.Driver{"fake": own} })
		pass(time.Second)
		s.line.away.Store(false)
		if err := <-s.done; fault.CodeOf(err) != "worker_id_taken" {
			t.Errorf("got %v", err)
		}
		s.stop(nil)
		s.noSandboxes()
		pass(time.Hour)
		other.end()
	})
}

func TestOrphansAreSwept(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	driver, err := fake.New(fake.Options{StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := driver.Create(t.Context(), sandbox.Spec{ID: "orphan"}, func(sandbox.Handle) error { return nil }); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := setUp(t, func(c *worker.Config) {
			for _, dir := range []string{"spool", "snapshots"} {
				if err := os.MkdirAll(filepath.Join(c.Base, dir), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for _, stale := range []string{"spool/old-1.1", "snapshots/.tmp-1"} {
				if err := os.WriteFile(filepath.Join(c.Base, stale), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			reopened, err := fake.New(fake.Options{StateDir: state})
			if err != nil {
				t.Fatal(err)
			}
			c.Drivers = map[string]sandbox.Driver{"fake": reopened}
		})
		synctest.Wait()
		s.noSandboxes()
		if left := slices.Concat(entries(t, filepath.Join(s.base, "spool")), entries(t, filepath.Join(s.base, "snapshots"))); len(left) != 0 {
			t.Errorf("left %q", left)
		}
		s.end()
	})
}

func TestIdentityIsKept(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		path := filepath.Join(s.base, "worker.json")
		first, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		s.end()
		s.start(nil)
		synctest.Wait()
		if again, err := os.ReadFile(path); err != nil || string(again) != string(first) {
			t.Errorf("it became %q, %v", again, err)
		}
		s.end()
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.start(nil)
		if err := <-s.done; !fault.Is(err, fault.Invalid) {
			t.Errorf("a damaged identity gave %v", err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		s.start(nil)
		synctest.Wait()
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	driver, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	good := worker.Config{
		Manager: dispatchtest.NewReference(), Drivers: map[string]sandbox.Driver{"fake": driver}, Driver: "fake", Base: "b", WorkerID: "w",
	}
	for name, change := range map[string]func(*worker.Config){
		"manager":   func(c *worker.Config) { c.Manager = nil },
		"base":      func(c *worker.Config) { c.Base = "" },
		"worker_id": func(c *worker.Config) { c.WorkerID = "" },
		"driver":    func(c *worker.Config) { c.Driver = "gvisor" },
		"slots":     func(c *worker.Config) { c.Slots = -1 },
	} {
		c := good
		change(&c)
		if _, err := worker.New(c); !fault.Is(err, fault.Invalid) || !strings.HasPrefix(err.Error(), name+":") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// Start and stop at any moment, with work on the way: nothing leaks, nothing is
// lost, nothing is accepted twice.
func TestStress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setUp(t, nil)
		var ids []string
		for range 30 {
			for range rand.IntN(6) {
				ids = append(ids, s.submit(payload("exec", map[string]any{"command": []string{"sleep", fmt.Sprint(rand.IntN(3))}})))
			}
			if rand.IntN(3) == 0 {
				s.ref.Restart()
			}
			<-time.After(time.Duration(rand.IntN(4000)) * time.Millisecond) // virtual
			s.end()
			s.start(nil)
		}
		pass(5 * time.Minute)
		for _, id := range ids {
			if res, _ := s.result(id); !res.Success {
				t.Errorf("%s: %s", id, res.Details)
			}
		}
		s.end()
	})
}
