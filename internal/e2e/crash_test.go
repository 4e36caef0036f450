package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// TestCrash kills the manager, a worker, or everything, again and again while
// clients submit, claim and follow, and then reads the record as an auditor
// would: nothing lost, nothing twice, nothing out of order.
func TestCrash(t *testing.T) {
	t.Parallel()
	crash(t, newRoles(t), number(t, "CRASHES", 50), time.Second)
}

// TestCrashUp does the same to `aurea up`, whose children are killed and come
// back, and which is killed itself.
func TestCrashUp(t *testing.T) {
	t.Parallel()
	crash(t, newSupervised(t), min(8, number(t, "CRASHES", 8)), 1500*time.Millisecond)
}

// number reads a number from the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s is %q, which is no number", name, text)
	}
	return n
}

var (
	errEnough = errors.New("there was enough of it")
	errOver   = errors.New("the test is over")
)

// crash harms a plant under load so many times and checks what is left.
func crash(t *testing.T, p plant, times int, most time.Duration) {
	seed := number(t, "CRASH_SEED", rand.IntN(1<<31))
	t.Logf("CRASH_SEED=%d CRASHES=%d", seed, times)
	random := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), stream)) }
	k := newAsker(t, p.url())
	eventually(t, "the plant works", func() (bool, string) {
		var stats struct{}
		err := k.get(t.Context(), "/api/v1/queue/stats", &stats)
		return err == nil, fmt.Sprint(err)
	})

	c := &crowd{
		asker: k, ledger: &ledger{kept: map[string]promise{}}, follower: &follower{}, history: &history{began: time.Now()},
		errs: make(chan error, 100),
	}
	c.gather(t, random)
	defer c.leave(errOver)
	chaos := random(0)
	for i := range times {
		pause(t.Context(), time.Duration(chaos.Int64N(int64(most))))
		what, err := p.hurt(chaos)
		if err != nil {
			t.Fatalf("kill %d, %s: %v", i, what, err)
		}
		if testing.Verbose() {
			t.Logf("%v: killed %s", time.Since(c.history.began).Round(time.Millisecond), what)
		}
		c.mustBeWell(t)
	}
	c.settle(t)
	a := audit(t, k, c, p)
	said, err := p.end()
	if err != nil {
		t.Error(err)
	}
	bad, complained := complaints(said)
	for _, line := range bad {
		t.Errorf("somebody said: %s", line)
	}
	for _, line := range complained {
		t.Logf("logged as an error: %s", line)
	}
	a.folders(t, p)
	a.integrity(t, p.database())
	if t.Failed() {
		keep(t, said)
	}
}

// keep writes the logs of a failed run where they can be read.
func keep(t *testing.T, said string) {
	t.Helper()
	f, err := os.CreateTemp("/tmp", "aurea-e2e-log-")
	if err != nil {
		t.Log(err)
		return
	}
	defer func() { _ = f.Close() }()
	_, _ = f.WriteString(said)
	t.Logf("all logs are in %s", f.Name())
}

// crowd is everybody who uses the plant while it is harmed.
type crowd struct {
	*asker
	*ledger
	*follower
	*history
	errs chan error

	submitting, claiming, following sync.WaitGroup

	stopSubmitting, stopClaiming, stopFollowing context.CancelCauseFunc
}

// gather lets them in.
func (c *crowd) gather(t *testing.T, random func(uint64) *rand.Rand) {
	submit, stopSubmitting := context.WithCancelCause(t.Context())
	claim, stopClaiming := context.WithCancelCause(t.Context())
	follow, stopFollowing := context.WithCancelCause(t.Context())
	c.stopSubmitting, c.stopClaiming, c.stopFollowing = stopSubmitting, stopClaiming, stopFollowing
	for i := range 4 {
		c.submitting.Go(func() { c.tell(c.load(submit, c.asker, i, random(uint64(100+i)))) })
		c.claiming.Go(func() { c.tell(c.claimer(claim, c.asker, i, random(uint64(200+i)))) })
	}
	c.following.Go(func() { c.follow(follow, c.asker) })
}

func (c *crowd) tell(err error) {
	if err != nil {
		select {
		case c.errs <- err:
		default:
		}
	}
}

func (c *crowd) mustBeWell(t *testing.T) {
	t.Helper()
	select {
	case err := <-c.errs:
		t.Fatal(err)
	default:
	}
}

// leave ends them all and waits for them.
func (c *crowd) leave(why error) {
	c.stopSubmitting(why)
	c.stopClaiming(why)
	c.stopFollowing(why)
	c.submitting.Wait()
	c.claiming.Wait()
	c.following.Wait()
}

// settle lets the plant do all that was promised, with nobody harming it.
func (c *crowd) settle(t *testing.T) {
	t.Helper()
	c.stopSubmitting(errEnough)
	c.submitting.Wait()
	c.mustBeWell(t)
	eventually(t, "the queue is empty", func() (bool, string) {
		var stats struct {
			Counts map[string]int
			Total  int
		}
		if err := c.get(t.Context(), "/api/v1/queue/stats", &stats); err != nil {
			return false, err.Error()
		}
		return stats.Counts["COMPLETED"] == stats.Total, fmt.Sprint(stats.Counts)
	})
	c.stopClaiming(errEnough) // a refused claim is an event too
	c.claiming.Wait()
	c.mustBeWell(t)
	eventually(t, "the follower has caught up", func() (bool, string) {
		events := c.tail(t, c.last())
		return len(events) == 0, fmt.Sprintf("%d events to go", len(events))
	})
	c.leave(errEnough)
	c.mustBeWell(t)
}

// tail lists the events after a cursor, a page at most.
func (c *crowd) tail(t *testing.T, after int64) []stored {
	t.Helper()
	a, err := c.ask(t.Context(), "GET", fmt.Sprintf("/events?limit=1000&after=%d", after), nil, "Accept", "application/json")
	var events []stored
	if err == nil {
		err = a.into(200, &events)
	}
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// ask of a crowd is that of its asker.
func (c *crowd) ask(ctx context.Context, method, path string, body []byte, header ...string) (answer, error) {
	return c.asker.ask(ctx, method, path, body, header...)
}

// readAll adds to the history how the jobs ended.
func (c *crowd) readAll(status map[string]string) {
	for _, op := range append([]porcupine.Operation(nil), c.ops...) {
		id := op.Input.(call).job
		if s, ok := status[id]; ok {
			now := c.now()
			c.ops = append(c.ops, porcupine.Operation{ClientId: 9, Input: call{job: id, verb: "read", from: now, until: now + 1}, Call: now, Output: result{status: s}, Return: now + 1})
			delete(status, id)
		}
	}
}
