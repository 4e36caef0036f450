package runner

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/store"
)

func TestAFullLineRefusesAndStoresNothing(t *testing.T) {
	t.Parallel()
	b := newBench()
	cfg := config(t, b.worker(1))
	cfg.Most, cfg.Patience = 2, time.Millisecond
	r := start(t, cfg)
	defer b.letGo()
	first := submit(t, r, "o", "wait")
	b.begins(t)
	_, err := r.Execute(as("o"), code("say:x"), run.Asked{})
	if fault.CodeOf(err) != "no_room" || !fault.Is(err, fault.Exhausted) {
		t.Errorf("got %v", err)
	}
	submit(t, r, "o", "wait", "wait")
	for what, ask := range map[string]func() error{
		"one that waits":  func() error { _, err := r.Execute(as("o"), code("say:x"), run.Asked{}); return err },
		"one that queues": func() error { _, err := r.SubmitRuns(as("p"), []run.Request{code("say:x")}, run.Asked{}); return err },
	} {
		if err := ask(); fault.CodeOf(err) != "queue_full" || !fault.Is(err, fault.Exhausted) {
			t.Errorf("%s: %v", what, err)
		}
	}
	list, err := r.Runs(policy.With(context.Background(), policy.LocalCaller()), store.RunFilter{})
	if err != nil || len(list) != 3 || list[2].ID != first[0] {
		t.Errorf("%d runs are kept, %v", len(list), err)
	}
}

func TestBadRequestsAreRefusedWholeAndNothingIsStored(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := start(t, config(t, b.worker(1)))
	for what, ask := range map[string]func() error{
		"one bad of a batch": func() error {
			_, err := r.SubmitRuns(as("o"), []run.Request{code("say:x"), {Code: "x", Files: map[string]string{"../x": ""}}}, run.Asked{})
			if !strings.Contains(err.Error(), "runs[1].files[../x]") {
				t.Errorf("the fault is %v", err)
			}
			return err
		},
		"no runs":       func() error { _, err := r.SubmitRuns(as("o"), nil, run.Asked{}); return err },
		"too many runs": func() error { _, err := r.SubmitRuns(as("o"), make([]run.Request, 1001), run.Asked{}); return err },
		"no language": func() error {
			_, err := r.Execute(as("o"), run.Request{Code: "x", Language: "cobol"}, run.Asked{})
			return err
		},
		"a hook for sync": func() error {
			_, err := r.Execute(as("o"), run.Request{Code: "x", Webhook: "https://a"}, run.Asked{})
			return err
		},
	} {
		if err := ask(); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := r.Execute(as("o"), run.Request{Code: "x", Driver: "moon"}, run.Asked{}); fault.CodeOf(err) != "driver_unavailable" {
		t.Errorf("an unserved driver: %v", err)
	}
	if list, _ := r.Runs(as("o"), store.RunFilter{}); len(list) != 0 || len(b.began) != 0 {
		t.Errorf("%d runs are kept, %d began", len(list), len(b.began))
	}
}

func TestTheSameKeyMakesNothingTwice(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := start(t, config(t, b.worker(2)))
	asked := run.Asked{Key: "k", Digest: "d"}
	first, err := r.SubmitRuns(as("o"), []run.Request{code("say:1"), code("say:2")}, asked)
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.SubmitRuns(as("o"), []run.Request{code("say:1"), code("say:2")}, asked)
	if err != nil || !again.Replayed || again.Runs[0].ID != first.Runs[0].ID || again.Runs[1].ID != first.Runs[1].ID {
		t.Errorf("got %+v, %v", again, err)
	}
	if _, err := r.SubmitRuns(as("o"), []run.Request{code("say:3")}, run.Asked{Key: "k", Digest: "e"}); fault.CodeOf(err) != "idempotency_mismatch" {
		t.Errorf("got %v", err)
	}
	if s, err := r.SubmitRuns(as("p"), []run.Request{code("say:3")}, asked); err != nil || s.Replayed {
		t.Errorf("another's key: %+v, %v", s, err)
	}
	sync := run.Asked{Key: "s", Digest: "d"}
	a, err := r.Execute(as("o"), code("say:once"), sync)
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.Execute(as("o"), code("say:once"), sync)
	if err != nil || c.ID != a.ID || string(c.Stdout) != "once" || !c.Replayed || a.Replayed {
		t.Errorf("got %+v, %v", c, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.began[a.ID] != 1 {
		t.Errorf("it began %d times", b.began[a.ID])
	}
}
