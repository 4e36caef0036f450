package live

import (
	"time"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Change is what of a sandbox can be changed; nil stays as it is. A time to
// live counts from the change on.
type Change struct {
	TTL, Idle *time.Duration
	OnTimeout *OnTimeout
	Labels    map[string]string
	Limits    *sandbox.Limits
	Sync      *Sync
}

// Fork is how a sandbox is forked.
type Fork struct {
	Snapshot string // to fork from; "" takes one now
	Count    int
	// Secrets says that what was named a secret is inherited too.
	Secrets bool
	Labels  map[string]string
}

// MaxForks bounds how many sandboxes one call makes.
const MaxForks = 100

// Piece is a part of an exec's output.
type Piece struct {
	Stream sandbox.Stream
	Offset int64
	Data   []byte // the reader's until it returns
}

// Patched is what a patch did to one file.
type Patched struct {
	Path   string // absolute
	From   string // what it was called, if it was renamed
	Change string // "created", "modified", "deleted", "renamed"
}
