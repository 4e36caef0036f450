package queue

import (
	"math/rand/v2"
	"time"
)

// The waits between the tries of a job.
const (
	firstWait   = time.Second
	longestWait = 60 * time.Second
)

// ceiling is the longest wait before the n-th try again, counted from 1: it
// doubles from firstWait up to longestWait.
func ceiling(n int) time.Duration {
	wait := firstWait
	for i := 1; i < n && wait < longestWait; i++ {
		wait *= 2
	}
	return min(wait, longestWait)
}

// backoff draws the wait before the n-th try again: anything from nothing to
// the ceiling, so that jobs that failed together do not come back together.
func (q *Queue) backoff(n int) time.Duration {
	most := ceiling(n)
	return min(max(q.cfg.Jitter(most), 0), most)
}

// randomJitter draws evenly from 0 to most.
func randomJitter(most time.Duration) time.Duration { return rand.N(most + 1) }
