package governor

import (
	"testing"
	"time"
)

// TestWhoDidNotListenHearsNoSilence holds when everybody gets all of their time
// anew: at the start, and after a break or a clock that was set.
func TestWhoDidNotListenHearsNoSilence(t *testing.T) {
	t.Parallel()
	start := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	var a attention
	for _, c := range []struct {
		what     string
		at, want time.Duration // since start
	}{
		{"the first look", 0, 0},
		{"the next", time.Second, 0},
		{"a slow one", 11 * time.Second, 0},
		{"after a stall of the machine", 22 * time.Second, 22 * time.Second},
		{"after that", 23 * time.Second, 22 * time.Second},
		{"after a jump forward", 24 * time.Hour, 24 * time.Hour},
		{"after a jump back", 25 * time.Second, 25 * time.Second},
		{"after that", 26 * time.Second, 25 * time.Second},
	} {
		if got := a.at(start.Add(c.at)).Sub(start); got != c.want {
			t.Errorf("%s: listening since %s, want %s", c.what, got, c.want)
		}
	}
}
