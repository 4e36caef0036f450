// Package pool keeps fresh sandboxes waiting, with the interpreter of a language
// started in each, so that a run need not wait for either. Each is used once:
// who claims it destroys it. A pool that is dry costs a run nothing but the time
// of a cold start, in the same isolation.
//
// The worker claims; it says how much memory may wait, and when more is needed
// for real work.
package pool

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

const (
	// readyTimeout bounds the start of an interpreter.
	readyTimeout = 30 * time.Second
	// maxAge is how long a sandbox waits before it is replaced.
	maxAge = 15 * time.Minute
	// calmAfter is how long a class must not have been dry for one fewer to wait.
	calmAfter = 30 * time.Second
	// look is how often the pool looks after itself when nobody wakes it.
	look = 5 * time.Second
	// quiet is for how long after a claim nothing is made beside the work that
	// it was for, as long as another waits: most of it is done by then.
	quiet = 100 * time.Millisecond
	// The pauses after a sandbox that could not be made.
	shortPause, longPause = time.Second, time.Minute
)

// Class says what waits for runs of one language.
type Class struct {
	Language language.Language
	// Min sandboxes wait, and up to Max where they are claimed faster than they
	// are made.
	Min, Max int
}

// Config says what a pool keeps, and what it may use for that.
type Config struct {
	Driver  sandbox.Driver
	Classes []Class
	// Brake, where there is one, stops what waits with everything else.
	Brake *sandbox.Brake
	// Limits are those of every waiting sandbox.
	Limits    sandbox.Limits
	OutputCap int64
	// Env is what every program's environment has beyond its sandbox's, Folder a
	// folder of its own that is made ahead where an interpreter waits: the others
	// stay as the image is.
	Env    map[string]string
	Folder string
	// Image is the image that runs of a language have which name none, at this
	// moment, and whether they can be run in it. Digest is what an image stands
	// for at this moment; "" is not known.
	Image  func(language.Language) (image string, active bool)
	Digest func(image string) string
	// Reserve takes memory for a sandbox that shall wait, where there is some;
	// Release gives it back.
	Reserve func(memory int64) bool
	Release func(memory int64)
	// Busy reports whether real work is under way.
	Busy   func() bool
	Labels map[string]string
	Logger *slog.Logger
}

// Pool is a set of waiting sandboxes. Make it with New and let it Run.
type Pool struct {
	config  Config
	making  chan struct{} // a token for each sandbox that is being made
	wake    chan struct{} // one token: there may be something to do
	working sync.WaitGroup

	mu      sync.Mutex
	classes []*class
	open    bool
	over    bool
	claimed time.Time // when the last one was
}

// class is one class with what waits in it.
type class struct {
	Class
	launcher *launcher // nil where a sandbox is all that waits
	wanted   int
	waiting  []*Held // oldest first
	making   int
	hits     int64
	misses   int64
	discards int64
	dry      time.Time     // when it was last dry
	after    time.Time     // nothing is made before this
	pause    time.Duration // after the next failure
}

// New returns a pool. A language that names an unknown launcher is a fault of
// kind Invalid.
func New(c Config) (*Pool, error) {
	p := &Pool{config: c, making: make(chan struct{}, max(runtime.NumCPU(), 1)), wake: make(chan struct{}, 1)}
	for _, of := range c.Classes {
		k := &class{Class: of, wanted: of.Min}
		if of.Language.Warm != "" {
			l, ok := launchers()[of.Language.Warm]
			if !ok {
				return nil, fault.Field("languages", "%s names the launcher %q, which is none of ours", of.Language.Name, of.Language.Warm)
			}
			k.launcher = &l
		}
		p.classes = append(p.classes, k)
	}
	return p, nil
}

// Want says what a run needs.
type Want struct {
	Language string
	Image    string
	Limits   sandbox.Limits
	Env      map[string]string
}

// Claim hands out a waiting sandbox with the limits that are wanted, which is
// the caller's then. It is nil where none waits that would be the same as a new
// one.
func (p *Pool) Claim(ctx context.Context, want Want) *Held {
	digest := p.config.Digest(want.Image)
	for {
		h := p.take(ctx, want, digest)
		if h == nil {
			return nil
		}
		err := h.Sandbox.Adjust(ctx, want.Limits)
		if err == nil {
			return h
		}
		p.spoiled(ctx, h, want, err)
		if fault.Is(err, fault.Invalid) {
			return nil // another would not take them either
		}
	}
}

// take takes the oldest sandbox that can be used out of its class.
func (p *Pool) take(ctx context.Context, want Want, digest string) *Held {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.classOf(want.Language)
	if k == nil || !p.open || !p.alike(k, want) {
		return nil // nothing that could ever wait
	}
	p.claimed = time.Now()
	time.AfterFunc(quiet, p.Look)
	for len(k.waiting) > 0 {
		h := k.waiting[0]
		k.waiting = slices.Delete(k.waiting, 0, 1)
		if !h.healthy() || h.image != want.Image || digest != "" && h.digest != digest {
			k.discards++
			p.discard(ctx, h)
			continue
		}
		k.hits++
		if len(k.waiting) == 0 {
			k.more()
			p.Look()
		}
		h.release = func() { p.config.Release(h.memory) }
		return h
	}
	k.misses++
	k.more()
	p.Look()
	return nil
}

func (p *Pool) classOf(language string) *class {
	for _, k := range p.classes {
		if k.Language.Name == language {
			return k
		}
	}
	return nil
}

// alike reports whether a sandbox that waits could be made what is wanted: what
// the host's kernel holds can be changed, what the sandbox's own was told cannot.
func (p *Pool) alike(k *class, want Want) bool {
	same := want.Limits
	same.Memory, same.MilliCPU = p.config.Limits.Memory, p.config.Limits.MilliCPU
	return same == p.config.Limits && (k.launcher == nil || k.launcher.takes(want.Env))
}

// spoiled discards a sandbox that was taken and could not be used.
func (p *Pool) spoiled(ctx context.Context, h *Held, want Want, err error) {
	p.config.Logger.Debug("a waiting sandbox could not be used", "sandbox", h.Sandbox.ID(), "error", err)
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.classOf(want.Language)
	k.hits, k.misses, k.discards = k.hits-1, k.misses+1, k.discards+1
	p.discard(ctx, h)
}

// more lets one more wait: the class is dry.
//
// Preconditions: the pool's mu is held.
func (k *class) more() {
	k.dry = time.Now()
	k.wanted = min(k.wanted+1, k.Max)
}

// Look has the pool look whether there is something to do, such as when work
// has ended.
func (p *Pool) Look() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Yield gives up waiting sandboxes until at least so much memory was given back,
// or none is left.
func (p *Pool) Yield(ctx context.Context, memory int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for memory > 0 {
		var most *class
		for _, k := range p.classes {
			if len(k.waiting) > 0 && (most == nil || len(k.waiting) > len(most.waiting)) {
				most = k
			}
		}
		if most == nil {
			return
		}
		h := most.waiting[0]
		most.waiting = slices.Delete(most.waiting, 0, 1)
		most.after = time.Now().Add(shortPause)
		memory -= h.memory
		p.discard(ctx, h)
	}
}

// discard destroys a sandbox that nobody has used.
//
// Preconditions: mu is held.
func (p *Pool) discard(ctx context.Context, h *Held) {
	ctx = context.WithoutCancel(ctx) // nobody waits for it
	p.working.Go(func() {
		if err := h.Sandbox.Close(ctx); err != nil {
			p.config.Logger.Error("could not destroy a waiting sandbox", "sandbox", h.Sandbox.ID(), "error", err)
		}
		p.config.Release(h.memory)
		p.Look()
	})
}

// Run keeps the pool until ctx ends, then empties it.
func (p *Pool) Run(ctx context.Context) {
	p.mu.Lock()
	p.open = !p.over
	p.mu.Unlock()
	timer := time.NewTicker(look)
	defer timer.Stop()
	for ctx.Err() == nil {
		p.tend(ctx)
		select {
		case <-p.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	p.Empty(ctx)
}

// Empty destroys everything that waits, and lets nothing wait any more. It
// returns when all of it is gone.
func (p *Pool) Empty(ctx context.Context) {
	p.mu.Lock()
	p.open, p.over = false, true
	for _, k := range p.classes {
		for _, h := range k.waiting {
			p.discard(ctx, h)
		}
		k.waiting = nil
	}
	p.mu.Unlock()
	p.working.Wait()
}

// tend throws out what is old, lets fewer wait where it is calm, and begins to
// make what is missing.
func (p *Pool) tend(ctx context.Context) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.classes {
		k.waiting = slices.DeleteFunc(k.waiting, func(h *Held) bool {
			bad := !h.healthy() || now.Sub(h.since) > maxAge
			if bad {
				k.discards++
				p.discard(ctx, h)
			}
			return bad
		})
		if k.wanted > k.Min && now.Sub(k.dry) > calmAfter {
			k.wanted, k.dry = k.wanted-1, now
		}
		for len(k.waiting) > k.wanted {
			p.discard(ctx, k.waiting[0])
			k.waiting = slices.Delete(k.waiting, 0, 1)
		}
	}
	for p.begin(ctx, now) {
	}
}

// begin begins to make one sandbox, for the class that lacks most.
//
// Preconditions: mu is held.
func (p *Pool) begin(ctx context.Context, now time.Time) bool {
	var next *class
	lack := 0
	busy := p.config.Busy()
	begun := busy && now.Sub(p.claimed) < quiet
	for _, k := range p.classes {
		if n := k.wanted - len(k.waiting) - k.making; n > lack && !now.Before(k.after) && (!begun || len(k.waiting) == 0) {
			next, lack = k, n
		}
	}
	if next == nil || !p.open || len(p.making) > 0 && busy {
		return false // beside real work one is made at a time
	}
	image, active := p.config.Image(next.Language)
	if !active || !p.config.Reserve(p.config.Limits.Memory) {
		next.after = now.Add(shortPause)
		return true // perhaps another class is luckier
	}
	select {
	case p.making <- struct{}{}:
	default:
		p.config.Release(p.config.Limits.Memory)
		return false
	}
	next.making++
	p.working.Go(func() {
		h, err := p.make(ctx, next, image)
		<-p.making
		p.made(ctx, next, h, err)
		p.Look()
	})
	return true
}

// made takes in what was made.
func (p *Pool) made(ctx context.Context, k *class, h *Held, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k.making--
	switch {
	case err != nil:
		p.config.Release(p.config.Limits.Memory)
		k.pause = min(max(2*k.pause, shortPause), longPause)
		k.after = time.Now().Add(k.pause)
		if ctx.Err() == nil {
			p.config.Logger.Warn("could not make a sandbox to wait for runs", "language", k.Language.Name, "error", err, "again_in", k.pause)
		}
	case !p.open:
		p.discard(ctx, h)
	default:
		k.pause = 0
		k.waiting = append(k.waiting, h)
	}
}

// State is what a class holds and has done.
type State struct {
	Language, Image         string
	Limits                  sandbox.Limits
	Wanted, Waiting, Making int
	Hits, Misses, Discards  int64
	Oldest                  time.Duration
}

// State says what the pool holds.
func (p *Pool) State() []State {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]State, 0, len(p.classes))
	for _, k := range p.classes {
		image, _ := p.config.Image(k.Language)
		s := State{
			Language: k.Language.Name, Image: image, Limits: p.config.Limits,
			Wanted: k.wanted, Waiting: len(k.waiting), Making: k.making, Hits: k.hits, Misses: k.misses, Discards: k.discards,
		}
		if len(k.waiting) > 0 {
			s.Oldest = time.Since(k.waiting[0].since)
		}
		all = append(all, s)
	}
	return all
}
