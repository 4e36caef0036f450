package filesync

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/file"
)

// Strategy says what becomes of a path that changed on both sides.
type Strategy string

// The strategies.
const (
	// LastWriteWins takes the side that was modified last; what the other had is
	// kept as a version.
	LastWriteWins Strategy = "last_write_wins"
	// Ask lists the conflict and leaves both sides alone until it is resolved.
	Ask Strategy = "ask"
	// AutoMerge puts texts together line by line; where both changed the same
	// lines, and for what is no text, the last write wins.
	AutoMerge Strategy = "auto_merge"
)

// Request says what to sync.
type Request struct {
	Session  string
	Sandbox  string // its id
	Root     string // the folder in it, absolute
	Strategy Strategy
	// Thorough reads every file, also those whose size and time are as they were.
	Thorough bool
}

func (r *Request) check() error {
	if err := file.CheckSession(r.Session); err != nil {
		return err
	}
	if r.Strategy == "" {
		r.Strategy = LastWriteWins
	}
	switch {
	case r.Sandbox == "":
		return fault.Field("sandbox_id", "must not be empty")
	case !path.IsAbs(r.Root) || path.Clean(r.Root) != r.Root || strings.ContainsRune(r.Root, 0):
		return fault.Field("root", "must be an absolute path without . and ..")
	case r.Strategy != LastWriteWins && r.Strategy != Ask && r.Strategy != AutoMerge:
		return fault.Field("strategy", "must be %s, %s or %s", LastWriteWins, Ask, AutoMerge)
	}
	return nil
}

// between names the two sides: what they had in common says nothing of others.
func (r *Request) between() string { return blob.Digest([]byte(r.Session + "\x00" + r.Root)) }

// Winner says what became of a conflict.
type Winner string

// The winners; nobody is that it was left.
const (
	Nobody    Winner = ""
	InSandbox Winner = "sandbox"
	Stored    Winner = "stored"
	Merged    Winner = "merged"
)

// Conflict is a path that changed on both sides.
type Conflict struct {
	Path string `json:"path"`
	// SHA256 and ModifiedAt are those of the file in the sandbox.
	SHA256     string    `json:"sha256"`
	ModifiedAt time.Time `json:"modified_at"`
	// Stored is the version that was stored.
	Stored file.File `json:"stored"`
	Winner Winner    `json:"winner,omitempty"`
}

// Failure is a path that could not be synced.
type Failure struct {
	Path    string `json:"path"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Result is what a pass did.
type Result struct {
	Uploaded   []string      `json:"uploaded"`   // from the sandbox
	Downloaded []string      `json:"downloaded"` // into it
	Deleted    []string      `json:"deleted"`    // on either side, because the other did
	Conflicts  []Conflict    `json:"conflicts"`
	Errors     []Failure     `json:"errors"` // at most 100 of them
	Failed     int           `json:"failed"` // how many they are
	Duration   time.Duration `json:"duration_ns"`
}

// Quiet reports whether a pass changed nothing.
func (r *Result) Quiet() bool { return len(r.Uploaded)+len(r.Downloaded)+len(r.Deleted) == 0 }

// Syncer syncs sandboxes with the files of their sessions.
type Syncer struct {
	shelf *Shelf
	log   *slog.Logger
	now   func() time.Time

	mu   sync.Mutex
	busy map[string]chan struct{} // by sandbox; closed when its pass has ended
}

// New makes one.
func New(shelf *Shelf, log *slog.Logger) *Syncer {
	return &Syncer{shelf: shelf, log: log, now: time.Now, busy: map[string]chan struct{}{}}
}

// Sync does one pass. A file that fails is listed and never stops the others;
// the error is that the pass as a whole could not be done. Passes of one sandbox
// wait for each other.
func (s *Syncer) Sync(ctx context.Context, side Side, req Request) (Result, error) {
	return s.sync(ctx, side, req, nil, nil)
}

// Resolve settles the conflict of one path in favour of a side, or, with
// Merged, by merging.
func (s *Syncer) Resolve(ctx context.Context, side Side, req Request, name string, winner Winner) (Result, error) {
	if err := file.CheckPath(name); err != nil {
		return Result{}, err
	}
	if winner != InSandbox && winner != Stored && winner != Merged {
		return Result{}, fault.Field("keep", "must be %s, %s or %s", InSandbox, Stored, Merged)
	}
	return s.sync(ctx, side, req, nil, &choice{path: name, winner: winner})
}

// choice is how somebody settled a conflict.
type choice struct {
	path   string
	winner Winner
}

func (s *Syncer) sync(ctx context.Context, side Side, req Request, changed map[string]bool, choice *choice) (Result, error) {
	if err := req.check(); err != nil {
		return Result{}, err
	}
	release, err := s.hold(ctx, req.Sandbox)
	if err != nil {
		return Result{}, err
	}
	defer release()
	start := time.Now()
	p := &pass{Syncer: s, side: side, req: req, root: req.Root, limits: s.shelf.limits, changed: changed, choice: choice}
	err = p.run(ctx)
	p.result.Duration = time.Since(start)
	return p.result, err
}

// hold waits for the sandbox's pass that is under way, and begins one.
func (s *Syncer) hold(ctx context.Context, sandboxID string) (release func(), err error) {
	for {
		s.mu.Lock()
		other := s.busy[sandboxID]
		if other == nil {
			done := make(chan struct{})
			s.busy[sandboxID] = done
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				delete(s.busy, sandboxID)
				s.mu.Unlock()
				close(done)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// errSandboxAway ends a pass whose sandbox does not answer.
var errSandboxAway = errors.New("the sandbox does not answer")
