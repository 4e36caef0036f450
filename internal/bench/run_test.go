package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/bench"
)

// prompt runs every program at once, as if from the pool.
func prompt(name string) bench.Runner {
	return bench.Runner{
		Name: name,
		Do: func(context.Context, bench.Hello) (bench.Ran, error) {
			return bench.Ran{Warm: true, Stages: []bench.Took{{Name: "claim", Took: time.Millisecond}, {Name: "exec", Took: 2 * time.Millisecond}}}, nil
		},
		CPUs: func() map[string]time.Duration { return map[string]time.Duration{"manager": time.Second} },
	}
}

func TestRunsComparesEverybody(t *testing.T) {
	t.Parallel()
	plain := func(context.Context, ...string) error { return nil }
	runners := []bench.Runner{
		bench.Plain(bench.Contender{Name: "bare process", Run: plain}),
		bench.Plain(bench.Contender{Name: "runsc run", Run: plain}),
		bench.Plain(bench.Left("docker run", "it is not installed")),
		prompt("ours"),
	}
	runners[1].Lacks = map[string]string{"bash": "it has none"}
	got, err := newBench().Runs(t.Context(), &steady{}, runners, bench.RunPlan{Rounds: 5, Clients: []int{1, 2}, Sustain: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	// Three languages, two numbers of clients, three runners, one of which lacks a language.
	if len(got.Rows) != 3*2*3-2 || len(got.Left) != 2 || len(got.Rates) != 3 || len(got.Stages) != 3*2 {
		t.Fatalf("%d rows, %d left out, %d rates, %d stages", len(got.Rows), len(got.Left), len(got.Rates), len(got.Stages))
	}
	for _, r := range got.Rows {
		want := 5
		if r.Clients == 2 {
			want = 6 // whole turns
		}
		if r.Runs != want || r.P50 <= 0 || r.P99 < r.P50 || r.Ratio <= 0 || (r.Warm == 1) != (r.Name == "ours") {
			t.Errorf("%+v", r)
		}
	}
	for _, r := range got.Rates {
		if r.Runs == 0 || r.PerSecond <= 0 || r.Ratio <= 0 || (len(r.Parts) == 1) != (r.Name == "ours") {
			t.Errorf("%+v", r)
		}
	}
	var text bytes.Buffer
	if err := got.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"python", "javascript", "python, ours: claim 1ms exec 2ms", "left out: docker run : it is not installed", "100 %"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	if _, err := json.Marshal(got); err != nil {
		t.Error(err)
	}
}

func TestARunThatFailsEndsTheBench(t *testing.T) {
	t.Parallel()
	broken := errors.New("it broke")
	r := bench.Runner{Name: "ours", Do: func(context.Context, bench.Hello) (bench.Ran, error) { return bench.Ran{}, broken }}
	if _, err := newBench().Runs(t.Context(), &steady{}, []bench.Runner{r}, bench.RunPlan{Rounds: 1, Clients: []int{1}}); !errors.Is(err, broken) {
		t.Error(err)
	}
	if _, err := newBench().Runs(t.Context(), &steady{}, []bench.Runner{r}, bench.RunPlan{Sustain: time.Millisecond}); !errors.Is(err, broken) {
		t.Error(err)
	}
}
