package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/driver/fake"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// durable prepares a worker whose sandboxes outlive it.
func durable(t *testing.T, change func(*worker.Config)) *stand {
	t.Helper()
	state := t.TempDir()
	s := setUp(t, func(c *worker.Config) {
		c.Drivers = map[string]sandbox.Driver{"fake": keeping(t, state)}
		if change != nil {
			change(c)
		}
	})
	s.state = state
	return s
}

func keeping(t *testing.T, state string) sandbox.Driver {
	t.Helper()
	d, err := fake.New(fake.Options{StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// kill is what SIGKILL does: what was written stays as it is at this moment,
// and nothing that the process says reaches anybody any more. It returns the
// stand on which the next process is started. What is left of the killed one
// goes on in folders that nobody looks at.
func (s *stand) kill() *stand {
	s.t.Helper()
	synctest.Wait()
	s.line.away.Store(true)
	next := &stand{t: s.t, ref: s.ref, line: &line{Manager: s.ref}, base: s.t.TempDir(), state: s.t.TempDir(), dead: append(s.dead, s)}
	for from, to := range map[string]string{s.base: next.base, s.state: next.state} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			s.t.Fatal(err)
		}
	}
	return next
}

// revive starts the next process.
func (s *stand) revive(change func(*worker.Config)) *stand {
	s.t.Helper()
	s.start(func(c *worker.Config) {
		c.Drivers = map[string]sandbox.Driver{"fake": keeping(s.t, s.state)}
		if change != nil {
			change(c)
		}
	})
	return s
}

// bury ends everything, also what was killed, and demands that nothing is left.
func (s *stand) bury() {
	s.t.Helper()
	s.end()
	for _, folder := range []string{"leases", "spool", "boxes"} {
		if left := entries(s.t, filepath.Join(s.base, folder)); len(left) != 0 {
			s.t.Errorf("%s has %q", folder, left)
		}
	}
	for _, d := range s.dead {
		d.stop(errors.New("it is dead"))
		<-d.done
	}
}

// steps counts the places that a worker comes by, and stops at one of them.
type steps struct {
	stopAt  int64
	count   atomic.Int64
	reached chan string   // gets the name of the place
	release chan struct{} // closed when it may go on
}

func newSteps(stopAt int) *steps {
	return &steps{stopAt: int64(stopAt), reached: make(chan string, 1), release: make(chan struct{})}
}

func (s *steps) at(place string) {
	if s.count.Add(1) == s.stopAt {
		s.reached <- place
		<-s.release
	}
}

// stepping is a driver whose every call is a place.
type stepping struct {
	sandbox.Driver
	at    func(string)
	asked *atomic.Bool // for an exec
}

func (d stepping) Create(ctx context.Context, spec sandbox.Spec, report func(sandbox.Handle) error) (sandbox.Box, error) {
	d.at("before create")
	b, err := d.Driver.Create(ctx, spec, func(h sandbox.Handle) error {
		d.at("before report")
		defer d.at("after report")
		return report(h)
	})
	d.at("after create")
	if err != nil {
		return nil, err
	}
	return steppingBox{b, d}, nil
}

func (d stepping) Recover(ctx context.Context, h sandbox.Handle) (sandbox.Box, error) {
	d.at("before recover")
	b, err := d.Driver.Recover(ctx, h)
	d.at("after recover")
	if err != nil {
		return nil, err
	}
	return steppingBox{b, d}, nil
}

func (d stepping) Destroy(ctx context.Context, h sandbox.Handle) error {
	d.at("before destroy")
	defer d.at("after destroy")
	return d.Driver.Destroy(ctx, h)
}

type steppingBox struct {
	sandbox.Box
	stepping
}

func (b steppingBox) process(p sandbox.Process, err error) (sandbox.Process, error) {
	if err != nil {
		return nil, err
	}
	return steppingProcess{p, b.at}, nil
}

func (b steppingBox) Exec(ctx context.Context, spec sandbox.ExecSpec) (sandbox.Process, error) {
	b.asked.Store(true)
	b.at("before exec")
	defer b.at("after exec")
	return b.process(b.Box.Exec(ctx, spec))
}

func (b steppingBox) Attach(ctx context.Context, id string, from sandbox.Offsets) (sandbox.Process, error) {
	b.at("before attach")
	defer b.at("after attach")
	return b.process(b.Box.Attach(ctx, id, from))
}

func (b steppingBox) Put(ctx context.Context, dir string, r io.Reader) error {
	b.at("before put")
	defer b.at("after put")
	return b.Box.Put(ctx, dir, r)
}

func (b steppingBox) Get(ctx context.Context, path string, w io.Writer) error {
	b.at("before get")
	defer b.at("after get")
	return b.Box.Get(ctx, path, w)
}

type steppingProcess struct {
	sandbox.Process
	at func(string)
}

func (p steppingProcess) Next(ctx context.Context) (sandbox.Frame, error) {
	p.at("before next")
	defer p.at("after next")
	return p.Process.Next(ctx)
}

func (p steppingProcess) Wait(ctx context.Context) (sandbox.Exit, error) {
	defer p.at("after wait")
	return p.Process.Wait(ctx)
}

func (p steppingProcess) Write(ctx context.Context, data []byte) error {
	p.at("before write")
	defer p.at("after write")
	return p.Process.Write(ctx, data)
}

func (p steppingProcess) CloseInput(ctx context.Context) error {
	p.at("before close of input")
	defer p.at("after close of input")
	return p.Process.CloseInput(ctx)
}

// crashing is one job whose worker is killed at some of its steps, one after
// the other. It tells at which places, and whether the command was asked for
// before the first.
func crashing(t *testing.T, payload string, stops []int, check func(s *stand, id string, places []string, begun bool)) (reached bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Bool
		var begun bool
		var step *steps
		world := func(c *worker.Config, stop int) {
			step = newSteps(stop)
			c.Manager.(*line).at = step.at
			c.Drivers = map[string]sandbox.Driver{"fake": stepping{c.Drivers["fake"], step.at, &asked}}
		}
		s := durable(t, func(c *worker.Config) { world(c, stops[0]) })
		id := s.submit(payload)
		var places []string
		for i := range stops {
			over := time.After(25 * time.Second) // the job takes 20
			now := step
			select {
			case place := <-now.reached:
				places = append(places, place)
			case <-over:
			}
			reached = len(places) == i+1
			if !reached {
				close(now.release)
				break
			}
			s = s.kill()
			begun = begun || i == 0 && asked.Load()
			close(now.release)
			<-time.After(3 * time.Second) // nobody is there
			next := 0
			if i+1 < len(stops) {
				next = stops[i+1]
			}
			s.revive(func(c *worker.Config) { world(c, next) })
		}
		pass(5 * time.Minute)
		check(s, id, places, begun)
		s.bury()
	})
	return reached
}

// A worker that is killed at any step of a job goes on with it. From the moment
// at which the command was asked for nothing is done twice and nothing is lost;
// before that the job may be begun again.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		payload string
		redo    []string // places at which the job may also be begun again later on
	}{
		"both streams": {payload: payload("exec", map[string]any{
			"command": []string{"sh", "-c", "cat in; echo err >&2; sleep 20; echo two; echo made > made; exit 7"},
			"files":   map[string]string{"in": "one\n"},
		})},
		"input": {payload: payload("exec", map[string]any{
			"command": []string{"sh", "-c", "cat; echo err >&2; sleep 20; echo two; echo made > made; exit 7"}, "stdin": "one\n",
		}), redo: []string{"before write", "after write"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n++ {
				more := crashing(t, tc.payload, []int{n}, func(s *stand, id string, places []string, begun bool) {
					again := slices.ContainsFunc(places, func(p string) bool { return slices.Contains(tc.redo, p) })
					sound(s, id, fmt.Sprintf("killed at %d, %q", n, places), begun && !again)
				})
				if !more {
					t.Logf("%d steps", n-1)
					break
				}
				if n > 1000 {
					t.Fatal("it never ends")
				}
			}
		})
	}
}

// Being killed again while it takes over changes nothing.
func TestKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	work := payload("exec", map[string]any{
		"command": []string{"sh", "-c", "cat in; echo err >&2; sleep 20; echo two; echo made > made; exit 7"},
		"files":   map[string]string{"in": "one\n"},
	})
	for range 15 {
		stops := []int{1 + rand.IntN(60), 1 + rand.IntN(40), 1 + rand.IntN(40)}
		crashing(t, work, stops, func(s *stand, id string, places []string, _ bool) {
			sound(s, id, fmt.Sprintf("killed at %v, %q", stops, places), false)
		})
	}
}

// sound demands the one result of the job, with every byte and the exit code.
func sound(s *stand, id, when string, once bool) {
	s.t.Helper()
	res, d := s.result(id)
	stdout, _ := inline(res, "stdout.log")
	stderr, _ := inline(res, "stderr.log")
	if d.ExitCode != 7 || d.Verdict != "failed" || stdout != "one\ntwo\n" || stderr != "err\n" || d.Error != "" {
		s.t.Errorf("%s: %s, stdout %q, stderr %q", when, res.Details, stdout, stderr)
	}
	if res.Record.Stdout.Bytes != 8 || res.Record.Stdout.Truncated || res.Record.Ended.Sub(res.Record.Started) > time.Minute {
		s.t.Errorf("%s: the record is %+v", when, res.Record)
	}
	if got := s.files(d.Snapshot)[id+"/made"]; got != "made\n" {
		s.t.Errorf("%s: the snapshot has %q", when, got)
	}
	if once && (res.Record.Attempt != 1 || len(s.ref.Lost(id)) != 0) {
		s.t.Errorf("%s: the job was begun again, lost %+v", when, s.ref.Lost(id))
	}
	seen := map[event.Type]int{}
	for _, h := range s.ref.Events(id)[len(s.ref.Events(id))-len(lastStory(s, id)):] {
		if seen[h.Type]++; seen[h.Type] > 1 && h.Type != event.SandboxAdopted {
			s.t.Errorf("%s: %s was told twice", when, h.Type)
		}
	}
	for _, typ := range []event.Type{event.JobStarted, event.SandboxCreated, event.ExecStarted, event.ExecEnded, event.SandboxDestroyed, event.SnapshotStored} {
		if seen[typ] != 1 {
			s.t.Errorf("%s: %s was told %d times", when, typ, seen[typ])
		}
	}
}

// lastStory is what was told under the last lease: it counts from 1.
func lastStory(s *stand, id string) []int64 {
	var story []int64
	for _, h := range s.ref.Events(id) {
		if h.N == 1 {
			story = nil
		}
		story = append(story, h.N)
	}
	for i, n := range story {
		if n != int64(i+1) {
			s.t.Errorf("the events are counted %v", story)
			break
		}
	}
	return story
}
