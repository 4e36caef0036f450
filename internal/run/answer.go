package run

import (
	"time"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Answer is what a run came to, with its bytes.
type Answer struct {
	Run
	Stdout, Stderr []byte
	Artifacts      map[string][]byte
	Evidence       string  // the digest of the record
	Stages         []Stage // where the time went, the manager's share included
	Replayed       bool    // it answers an earlier request with the same key
}

// Asked is how somebody asks, beside what for.
type Asked struct {
	Key    string // of idempotency; "" is none
	Digest string // of the request, under that key
	// Patience is how long to wait for a turn; 0 is the server's.
	Patience time.Duration
}

// Submission is runs that were queued, or that were under the same key before.
type Submission struct {
	Runs     []Run
	Replayed bool
}

// Piece is a part of a run's output.
type Piece struct {
	Data    []byte
	Next    int64 // the offset after Data
	Attempt int   // the try that it belongs to; another try starts again at 0
	Ended   bool  // nothing more will come
}

// Place is where in the line a run is.
type Place struct {
	Position int // how many turns come before
	Wait     time.Duration
}

// Pool is what the warm pool of one worker holds.
type Pool struct {
	Worker  string
	Classes []PoolClass
}

// PoolClass is one kind of waiting sandbox.
type PoolClass struct {
	Driver   string
	Image    string
	Language string
	Limits   sandbox.Limits
	Wanted   int // how many shall wait now
	Waiting  int // how many do
	Making   int
	Hits     int64
	Misses   int64
	Discards int64 // found dead or wrong at claim
	Oldest   time.Duration
}
