package pool

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/driver/fake"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// slow is a driver whose sandboxes take a second to make, and of which a test
// knows how many are made at a time.
type slow struct {
	sandbox.Driver
	fail atomic.Bool

	mu        sync.Mutex
	now, most int
	tries     int
}

func (d *slow) Create(ctx context.Context, spec sandbox.Spec, report func(sandbox.Handle) error) (sandbox.Box, error) {
	d.mu.Lock()
	d.tries++
	d.now++
	d.most = max(d.most, d.now)
	d.mu.Unlock()
	defer func() { d.mu.Lock(); d.now--; d.mu.Unlock() }()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if d.fail.Load() {
		return nil, fault.New(fault.Unavailable, "no sandbox today")
	}
	return d.Driver.Create(ctx, spec, report)
}

// shelf is a pool in virtual time.
type shelf struct {
	*Pool
	t      *testing.T
	driver *slow
	memory atomic.Int64 // left
	busy   atomic.Bool
	image  atomic.Value
	digest atomic.Value
}

const each = 100

func keep(t *testing.T, tell func(s *shelf), classes ...Class) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, err := fake.New(fake.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := &shelf{t: t, driver: &slow{Driver: d}}
		s.memory.Store(10 * each)
		s.image.Store("one")
		s.digest.Store("")
		s.Pool, err = New(Config{
			Driver: s.driver, Classes: classes, Limits: sandbox.Limits{Memory: each}, Logger: slog.New(slog.DiscardHandler),
			Image:  func(language.Language) (string, bool) { return s.image.Load().(string), s.image.Load() != "" },
			Digest: func(string) string { return s.digest.Load().(string) },
			Reserve: func(n int64) bool {
				if s.memory.Add(-n) >= 0 {
					return true
				}
				s.memory.Add(n)
				return false
			},
			Release: func(n int64) { s.memory.Add(n) },
			Busy:    s.busy.Load,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancelCause(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		tell(s)
		stop(errors.New("the test is over"))
		<-done
		left, err := s.driver.List(context.Background())
		if err != nil || len(left) != 0 || s.memory.Load() != 10*each {
			t.Errorf("%d sandboxes are left, %d bytes are free, %v", len(left), s.memory.Load(), err)
		}
	})
}

func shell(lowest, most int) Class {
	return Class{Language: language.Language{Name: "shell", File: "main.sh", Command: []string{"sh", language.FileWord}}, Min: lowest, Max: most}
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (s *shelf) claim() *Held {
	return s.Claim(s.t.Context(), Want{Language: "shell", Image: "one", Limits: sandbox.Limits{Memory: each}})
}

// use claims a sandbox and destroys it, and reports whether there was one.
func (s *shelf) use() bool {
	h := s.claim()
	if h == nil {
		return false
	}
	h.Release()
	if err := h.Sandbox.Close(s.t.Context()); err != nil {
		s.t.Error(err)
	}
	return true
}

func (s *shelf) want(waiting, wanted int) State {
	s.t.Helper()
	k := s.State()[0]
	if k.Waiting != waiting || k.Wanted != wanted {
		s.t.Errorf("%d wait of %d that shall, want %d of %d", k.Waiting, k.Wanted, waiting, wanted)
	}
	return k
}

func TestSizeFollowsDemand(t *testing.T) {
	keep(t, func(s *shelf) {
		pass(5 * time.Second)
		s.want(2, 2)
		for range 10 {
			s.use()
		}
		if k := s.State()[0]; k.Hits != 2 || k.Misses != 8 || k.Wanted != 5 {
			s.t.Errorf("%+v", k)
		}
		pass(20 * time.Second)
		s.want(5, 5)
		pass(10 * time.Minute)
		s.want(2, 2)
	}, shell(2, 5))
}

func TestBesideWorkOneIsMadeAtATime(t *testing.T) {
	keep(t, func(s *shelf) {
		s.busy.Store(true)
		pass(30 * time.Second)
		s.want(4, 4)
		if s.driver.most != 1 {
			s.t.Errorf("%d were made at a time", s.driver.most)
		}
	}, shell(4, 4))
}

func TestNothingIsMadeWhileAClaimIsAtWork(t *testing.T) {
	keep(t, func(s *shelf) {
		pass(10 * time.Second)
		s.want(3, 3)
		s.busy.Store(true)
		s.use()
		pass(quiet / 2)
		if k := s.State()[0]; k.Waiting != 2 || k.Making != 0 {
			s.t.Errorf("%d are made beside the work", k.Making)
		}
		s.busy.Store(false) // it was short
		s.Look()
		synctest.Wait()
		if k := s.State()[0]; k.Waiting+k.Making != 3 {
			s.t.Errorf("%d wait and %d are made after the work", k.Waiting, k.Making)
		}
		pass(10 * time.Second)
		s.busy.Store(true)
		s.use()
		pass(10 * time.Second) // it is long
		s.want(3, 3)
		s.use()
		s.use()
		s.use() // nothing waits any more
		synctest.Wait()
		if k := s.State()[0]; k.Making != 1 {
			s.t.Errorf("%d are made for a class that is dry", k.Making)
		}
	}, shell(3, 3))
}

func TestWaitingGivesWay(t *testing.T) {
	keep(t, func(s *shelf) {
		pass(10 * time.Second)
		s.want(4, 4)
		s.Yield(s.t.Context(), each+1)
		synctest.Wait()
		s.want(2, 4)
		s.memory.Store(0) // all of it is needed
		pass(time.Minute)
		s.want(2, 4)
		s.memory.Store(8 * each)
		pass(time.Minute)
		s.want(4, 4)
	}, shell(4, 4))
}

func TestReplacedImageIsNotHandedOut(t *testing.T) {
	keep(t, func(s *shelf) {
		pass(5 * time.Second)
		s.digest.Store("another")
		if s.use() {
			s.t.Error("a sandbox of the image that was")
		}
		if k := s.State()[0]; k.Discards != 2 {
			s.t.Errorf("%+v", k)
		}
	}, shell(2, 2))
}

func TestOldOnesAreReplaced(t *testing.T) {
	keep(t, func(s *shelf) {
		pass(5 * time.Second)
		first := s.claim()
		pass(maxAge + time.Minute)
		if k := s.want(1, 1); k.Oldest > maxAge {
			s.t.Errorf("one has waited for %s", k.Oldest)
		}
		first.Release()
		if err := first.Sandbox.Close(s.t.Context()); err != nil {
			s.t.Error(err)
		}
	}, shell(1, 2))
}

func TestFailuresAreNotTriedForEver(t *testing.T) {
	keep(t, func(s *shelf) {
		s.driver.fail.Store(true)
		pass(10 * time.Minute)
		if s.driver.tries > 30 {
			s.t.Errorf("tried %d times", s.driver.tries)
		}
		s.driver.fail.Store(false)
		pass(2 * time.Minute)
		s.want(1, 1)
	}, shell(1, 1))
}

func TestOtherThingsAreNotHandedOut(t *testing.T) {
	keep(t, func(s *shelf) {
		pass(5 * time.Second)
		like := Want{Language: "shell", Image: "one", Limits: sandbox.Limits{Memory: each}}
		for name, change := range map[string]func(*Want){
			"language": func(w *Want) { w.Language = "cobol" },
			"disk":     func(w *Want) { w.Limits.Disk = 1 },
			"memory":   func(w *Want) { w.Limits.Memory = each / 2 }, // the fake cannot change it
		} {
			w := like
			change(&w)
			if s.Claim(s.t.Context(), w) != nil {
				s.t.Errorf("another %s", name)
			}
		}
	}, shell(1, 1))
}

func TestInactiveLanguageWaitsForItsImage(t *testing.T) {
	keep(t, func(s *shelf) {
		s.image.Store("")
		pass(time.Minute)
		s.image.Store("one")
		pass(time.Minute)
		s.want(1, 1)
	}, shell(1, 1))
}

func TestClaimsAreAtomic(t *testing.T) {
	keep(t, func(s *shelf) {
		pass(10 * time.Second)
		var mu sync.Mutex
		seen := map[string]bool{}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				h := s.claim()
				if h == nil {
					return
				}
				mu.Lock()
				if seen[h.Sandbox.ID()] {
					s.t.Error("handed out twice")
				}
				seen[h.Sandbox.ID()] = true
				mu.Unlock()
				h.Release()
				if err := h.Sandbox.Close(s.t.Context()); err != nil {
					s.t.Error(err)
				}
			})
		}
		all.Wait()
		if len(seen) != 5 {
			s.t.Errorf("%d of 5 were handed out", len(seen))
		}
	}, shell(5, 5))
}

func TestUnknownLauncherIsRefused(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Classes: []Class{{Language: language.Language{Name: "x", Warm: "magic"}}}})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "magic") {
		t.Errorf("got %v", err)
	}
}

func TestHandOver(t *testing.T) {
	t.Parallel()
	got, err := handOver([]string{"a", ""}, []string{"B=c"})
	if want := "0000000009" + "2\x00a\x00\x00B=c\x00"; err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := handOver([]string{"a\x00b"}, nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("NUL: %v", err)
	}
	if _, err := handOver([]string{strings.Repeat("x", maxHandOver)}, nil); !fault.Is(err, fault.TooLarge) {
		t.Errorf("much: %v", err)
	}
}

func TestVariablesOfTheStart(t *testing.T) {
	t.Parallel()
	python := launchers()["python"]
	for name, takes := range map[string]bool{"A": true, "MYPYTHON": true, "PYTHONPATH": false, "LD_PRELOAD": false, "PATH": false, "PATHS": true, "TZ": false} {
		if python.takes(map[string]string{name: ""}) != takes {
			t.Errorf("%s: want %v", name, takes)
		}
	}
}
