package corpustest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// atATime is how many programs run at once, each of the ways.
const atATime = 2

// least is how many programs of each language the corpus has at least.
var least = map[string]int{"python": 90, "javascript": 40, "bash": 30}

// Every program of the corpus behaves in a cold sandbox, and in a warm one, as
// it does bare, byte for byte, but for what the docs name.
func TestCorpus(t *testing.T) {
	t.Parallel()
	cold := start(t, nil)
	warm := start(t, func(c *worker.Config) {
		c.Pool, c.PoolMax = map[string]int{"python": 3, "javascript": 2, "bash": 2}, 4
	})
	all, may := corpus(t), differences(t)
	counted := map[string]int{}
	for _, p := range all {
		counted[p.Language]++
	}
	for lang, n := range least {
		if counted[lang] < n {
			t.Errorf("the corpus has %d programs in %s, and should have %d", counted[lang], lang, n)
		}
	}
	coldRunner, warmRunner := <-cold.runner, <-warm.runner
	var turn sync.Mutex // so that nobody claims what another has waited for
	compareAll(t, all, may, map[string]way{
		"cold": func(p program) (outcome, error) { return throughWorker(coldRunner, p, nil) },
		"warm": func(p program) (outcome, error) {
			turn.Lock()
			defer turn.Unlock()
			return throughPool(warmRunner, p)
		},
	})
	if state, err := warmRunner.Pool(t.Context()); err == nil {
		for _, k := range state.Classes {
			t.Logf("%s: %d runs were warm, %d found the pool dry", k.Language, k.Hits, k.Misses)
		}
	}
	for d := range may {
		t.Errorf("the docs name a difference of %s that is none: %s", d.way, d.program)
	}
}

// way runs a program in one of the ways.
type way func(p program) (outcome, error)

// compareAll compares each way with the bare one. It takes the differences that
// it meets out of may.
func compareAll(t *testing.T, all []program, may map[difference]bool, ways map[string]way) {
	t.Helper()
	programs := make(chan program)
	var mu sync.Mutex
	var working sync.WaitGroup
	for range atATime {
		room := openBare(t)
		working.Go(func() {
			for p := range programs {
				want, err := room.run(p)
				if err != nil {
					t.Errorf("%s, bare: %v", p.Name, err)
					continue
				}
				for name, run := range ways {
					got, err := run(p)
					for tries := 0; fault.Is(err, fault.Unavailable) && tries < 3; tries++ {
						// It says nothing of the program: none was started. A
						// machine that is this busy is told of.
						t.Logf("%s, %s, is tried again: %v", p.Name, name, err)
						got, err = run(p)
					}
					if err != nil {
						t.Errorf("%s, %s: %v", p.Name, name, err)
						continue
					}
					diff := cmp.Diff(want.normal(), got.normal())
					d := difference{p.Name, name}
					mu.Lock()
					allowed := may[d]
					if diff != "" {
						delete(may, d)
					}
					mu.Unlock()
					if diff != "" && !allowed {
						t.Errorf("%s is not the same bare (-) and %s (+):\n%s", p.Name, name, diff)
					}
				}
			}
		})
	}
	for _, p := range all {
		programs <- p
	}
	close(programs)
	working.Wait()
}

// throughWorker runs a program as a manager has it run.
func throughWorker(runner dispatch.Runner, p program, look func(run.Result) error) (outcome, error) {
	var out [3]bytes.Buffer
	res, err := runner.Run(context.Background(), p.order(uuid.NewString()), func(c dispatch.Chunk) error {
		if int64(out[c.Stream].Len()) != c.Offset {
			return fmt.Errorf("a piece at %d follows one that ends at %d", c.Offset, out[c.Stream].Len())
		}
		_, err := out[c.Stream].Write(c.Data)
		return err
	})
	if err != nil {
		return outcome{}, err
	}
	switch res.Verdict {
	case sandbox.OK, sandbox.Failed, sandbox.Signal:
	case sandbox.Timeout, sandbox.OOM, sandbox.Killed, sandbox.Lost, sandbox.Limit:
		return outcome{}, fmt.Errorf("ended as %s: %s", res.Verdict, res.Cause)
	}
	if look != nil {
		if err := look(res); err != nil {
			return outcome{}, err
		}
	}
	return outcome{Stdout: out[sandbox.Stdout].Bytes(), Stderr: out[sandbox.Stderr].Bytes(), Code: res.ExitCode, Signal: res.Signal}, nil
}

// throughPool runs a program in a sandbox that waited for it. A dry pool is
// waited for: a program that another has outrun would say nothing of warm ones.
func throughPool(runner dispatch.Runner, p program) (outcome, error) {
	const tries = 50
	for range tries {
		if err := awaitWaiting(runner, p.Language); err != nil {
			return outcome{}, err
		}
		var warm bool
		o, err := throughWorker(runner, p, func(r run.Result) error { warm = r.Warm; return nil })
		if err != nil || warm || p.setsInterpreter() {
			return o, err
		}
	}
	return outcome{}, fmt.Errorf("was cold %d times", tries)
}

// setsInterpreter reports whether the program's environment is one that an
// interpreter reads at its start: one that was started before cannot know it,
// and such a run is a cold one.
func (p program) setsInterpreter() bool {
	for name := range p.Env {
		if strings.HasPrefix(name, "PYTHON") || strings.HasPrefix(name, "NODE_") {
			return true
		}
	}
	return false
}

// awaitWaiting returns when a sandbox waits for code of a language.
func awaitWaiting(runner dispatch.Runner, lang string) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), programTimeout, errors.New("nothing waits for code in "+lang))
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		state, err := runner.Pool(ctx)
		if err != nil {
			return err
		}
		for _, k := range state.Classes {
			if k.Language == lang && k.Waiting > 0 {
				return nil
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// difference is a program that need not be the same in one way.
type difference struct{ program, way string }

// differences reads from the docs which are allowed: the list there is the only
// one.
func differences(t *testing.T) map[difference]bool {
	t.Helper()
	text, err := os.ReadFile("../../docs/languages.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## What differs\n")
	if !ok {
		t.Fatal("docs/languages.md does not say what differs")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	may := map[difference]bool{}
	for row := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(row), " | ")
		if len(cells) != 3 || !strings.HasPrefix(cells[0], "| `") {
			continue
		}
		for way := range strings.SplitSeq(cells[1], ", ") {
			may[difference{strings.Trim(cells[0], "| `"), way}] = true
		}
	}
	return may
}
