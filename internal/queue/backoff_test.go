package queue

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBackoffStaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(-3, math.MaxInt32).Draw(t, "n")
		wild := time.Duration(rapid.Int64().Draw(t, "jitter")) // a source that keeps no bounds
		fair := rapid.Float64Range(0, 1).Draw(t, "share")

		most := min(math.Pow(2, float64(max(n, 1)-1)), 60)
		if got := ceiling(n).Seconds(); got != most {
			t.Fatalf("the ceiling of wait %d is %v s, want %v s", n, got, most)
		}
		q := &Queue{cfg: Config{Jitter: func(time.Duration) time.Duration { return wild }}}
		if got := q.backoff(n); got < 0 || got > ceiling(n) {
			t.Fatalf("wait %d is %s, not from 0 to %s", n, got, ceiling(n))
		}
		q.cfg.Jitter = func(most time.Duration) time.Duration { return time.Duration(fair * float64(most)) }
		if got, want := q.backoff(n), time.Duration(fair*float64(ceiling(n))); got != want {
			t.Fatalf("wait %d is %s, but the jitter drew %s", n, got, want)
		}
	})
}

func TestTheDefaultJitterUsesTheWholeRange(t *testing.T) {
	t.Parallel()
	// A hundred draws all in one half happen once in 2^99 runs.
	q := &Queue{cfg: Config{Jitter: randomJitter}}
	low, high := 0, 0
	for range 100 {
		switch wait := q.backoff(7); {
		case wait < 0 || wait > longestWait:
			t.Fatalf("drew %s", wait)
		case wait < longestWait/2:
			low++
		default:
			high++
		}
	}
	if low == 0 || high == 0 {
		t.Errorf("of 100 waits %d are short and %d long", low, high)
	}
}
