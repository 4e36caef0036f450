package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Subject says whose a sandbox is, as far as the kill switch asks.
type Subject struct {
	ID      string // by which users know it
	Parent  string
	Project int64
	Labels  map[string]string
}

// Stop is what holds for a sandbox; the zero value lets it be.
type Stop struct {
	Kill, Freeze bool
	Reason       string
}

// Rule says what holds. All is for everything, also for what nobody has asked
// for yet.
type Rule struct {
	All Stop
	Of  func(Subject) Stop
}

func (r Rule) of(x Subject) Stop {
	if r.All.Kill || r.Of == nil {
		return r.All
	}
	return r.Of(x)
}

// Braked counts what came of a rule.
type Braked struct{ Killed, Frozen, Resumed, Failed int }

// CodeStopped is the code of the fault of what a Brake does not let begin.
const CodeStopped = "KILL_SWITCH"

// Brake stops sandboxes all at once. It knows those that were opened or adopted
// with it, and holds each to the rule that was applied last: one that is to be
// killed is not opened, one that is to be frozen waits.
type Brake struct {
	turn chan struct{} // holds one token while a rule is applied

	mu      sync.Mutex
	rule    Rule
	changed chan struct{} // closed and replaced when the rule is another
	all     map[*Sandbox]*braked
	opening map[*opening]struct{}
	killing chan struct{} // closed when no kill is under way; nil while none is
}

// braked is a sandbox that the brake knows.
type braked struct {
	subject Subject
	frozen  bool // by the brake
	held    bool // by its user, so that the brake lets it go and it stays
}

// opening is a sandbox that is being made.
type opening struct {
	subject Subject
	cancel  context.CancelCauseFunc
}

// NewBrake returns a brake that lets everything be.
func NewBrake() *Brake {
	return &Brake{
		turn: make(chan struct{}, 1), changed: make(chan struct{}),
		all: map[*Sandbox]*braked{}, opening: map[*opening]struct{}{},
	}
}

// Over is what holds for everything now, and what tells of a change.
func (b *Brake) Over() (Stop, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rule.All, b.changed
}

// Check is what holds for a subject now.
func (b *Brake) Check(x Subject) Stop {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rule.of(x)
}

func stopped(s Stop) error {
	return fault.New(fault.Unavailable, "%s", s.Reason).WithCode(CodeStopped)
}

// Within returns a context that ends when everything is to be killed, for work
// that is done in no sandbox.
func (b *Brake) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for {
			stop, changed := b.Over()
			if stop.Kill {
				cancel(stopped(stop))
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// begin lets a sandbox be made, refuses it, or waits while it would be frozen.
// The context ends when the sandbox is to be killed before it was made.
func (b *Brake) begin(ctx context.Context, x Subject) (context.Context, *opening, error) {
	if b == nil {
		return ctx, nil, nil
	}
	for {
		b.mu.Lock()
		stop, changed := b.rule.of(x), b.changed
		if !stop.Kill && !stop.Freeze {
			ctx, cancel := context.WithCancelCause(ctx)
			o := &opening{subject: x, cancel: cancel}
			b.opening[o] = struct{}{}
			b.mu.Unlock()
			return ctx, o, nil
		}
		b.mu.Unlock()
		if stop.Kill {
			return nil, nil, stopped(stop)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("wait until sandboxes may be made again: %w", context.Cause(ctx))
		}
	}
}

// end says that the making has ended; s is what was made, or nil. The caller
// brings it to what holds for it now.
func (b *Brake) end(o *opening, s *Sandbox) Stop {
	if b == nil || o == nil {
		return Stop{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	o.cancel(nil)
	delete(b.opening, o)
	if s == nil {
		return Stop{}
	}
	stop := b.rule.of(o.subject)
	b.all[s] = &braked{subject: o.subject, frozen: stop.Freeze}
	return stop
}

// enter makes an adopted sandbox known. The next rule that is applied finds it.
func (b *Brake) enter(s *Sandbox, x Subject) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all[s] = &braked{subject: x}
}

// AssumeFrozen says that an adopted sandbox stands still because a brake of an
// earlier process has frozen it.
func (s *Sandbox) AssumeFrozen() {
	s.setPaused(true)
	b := s.opts.Brake
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.all[s]; known != nil {
		known.frozen = true
	}
}

// hold says whether a sandbox stands still by its user's will from now on, and
// returns how it was before.
func (b *Brake) hold(s *Sandbox, held bool) (before bool) {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.all[s]; known != nil {
		before, known.held = known.held, held
	}
	return before
}

// demandFree refuses to let a sandbox go on that the rule stops.
func (b *Brake) demandFree(s *Sandbox) error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.all[s]; known != nil {
		if stop := b.rule.of(known.subject); stop.Kill || stop.Freeze {
			return stopped(stop)
		}
	}
	return nil
}

// catch reports whether a sandbox that has just begun to go on is to be frozen
// after all, by the brake: a rule that was applied while it still stood passed it
// by.
func (b *Brake) catch(s *Sandbox) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.all[s]
	if known == nil || !b.rule.of(known.subject).Freeze {
		return false
	}
	known.frozen = true
	return true
}

func (b *Brake) leave(s *Sandbox) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, s)
}

// settle waits while sandboxes are being killed: what is left of one is cleared
// away when all are dead.
func (b *Brake) settle(ctx context.Context) {
	if b == nil {
		return
	}
	b.mu.Lock()
	killing := b.killing
	b.mu.Unlock()
	if killing == nil {
		return
	}
	select {
	case <-killing:
	case <-ctx.Done():
	}
}

// Assign says whose a sandbox is from now on that waited for somebody. One that
// may not be his is a fault with code CodeStopped.
func (s *Sandbox) Assign(x Subject) error {
	b := s.opts.Brake
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	stop := b.rule.of(x)
	if stop.Kill || stop.Freeze {
		return stopped(stop)
	}
	if known := b.all[s]; known != nil {
		known.subject = x
	}
	return nil
}

// Apply puts a rule in place of the one that holds, and returns when every
// sandbox has come to it: those to be killed first, all at once, then those to
// be frozen, then those that may go on. drivers are all that there are; where
// everything is to be killed, also what no Sandbox stands for dies.
func (b *Brake) Apply(ctx context.Context, rule Rule, drivers map[string]Driver) (done Braked, err error) {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return Braked{}, fault.New(fault.Unavailable, "wait for another stop: %w", context.Cause(ctx))
	}
	kills, freezes, resumes := b.sort(rule)
	done.Killed = len(kills)
	killed := b.kill(ctx, rule, kills, drivers)
	frozen := each(freezes, func(s *Sandbox) error { return s.freeze(ctx) })
	resumed := each(resumes, func(s *Sandbox) error { return s.goOn(ctx) })
	b.mu.Lock()
	for i, s := range freezes {
		if known := b.all[s]; known != nil {
			known.frozen = frozen[i] == nil
		}
	}
	for i, s := range resumes {
		if known := b.all[s]; known != nil && resumed[i] == nil {
			known.frozen = false
		}
	}
	b.mu.Unlock()
	for _, failed := range [][]error{frozen, resumed} {
		for _, one := range failed {
			if one != nil && !fault.Is(one, fault.NotFound) {
				done.Failed++
				err = errors.Join(err, one)
			}
		}
	}
	done.Frozen, done.Resumed = count(frozen), count(resumed)
	return done, errors.Join(killed, err)
}

func count(errs []error) (n int) {
	for _, err := range errs {
		if err == nil {
			n++
		}
	}
	return n
}

// sort makes a rule the one that holds, and says what it means for each.
func (b *Brake) sort(rule Rule) (kills map[*Sandbox]string, freezes, resumes []*Sandbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rule = rule
	close(b.changed)
	b.changed = make(chan struct{})
	for o := range b.opening {
		if stop := rule.of(o.subject); stop.Kill {
			o.cancel(stopped(stop))
		}
	}
	kills = map[*Sandbox]string{}
	for s, known := range b.all {
		paused, _ := s.pausedNow()
		switch stop := rule.of(known.subject); {
		case stop.Kill:
			kills[s] = stop.Reason
		case stop.Freeze && !known.frozen && !paused:
			freezes = append(freezes, s)
		case !stop.Freeze && known.frozen && known.held:
			known.frozen = false
		case !stop.Freeze && known.frozen:
			resumes = append(resumes, s)
		}
	}
	if len(kills) > 0 || rule.All.Kill {
		b.killing = make(chan struct{})
	}
	return kills, freezes, resumes
}

// kill ends sandboxes. What is to be said of each is decided first, which costs
// nothing, so that nobody takes its death for an accident.
func (b *Brake) kill(ctx context.Context, rule Rule, kills map[*Sandbox]string, drivers map[string]Driver) error {
	b.mu.Lock()
	killing := b.killing
	b.mu.Unlock()
	if killing == nil {
		return nil
	}
	defer func() {
		b.mu.Lock()
		b.killing = nil
		b.mu.Unlock()
		close(killing)
	}()
	ids := map[string][]string{}
	for s, reason := range kills {
		s.completing(OutcomeKilled, reason)
		ids[s.opts.Driver.Name()] = append(ids[s.opts.Driver.Name()], s.ID())
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	var all []error
	for name, d := range drivers {
		these := ids[name]
		if rule.All.Kill {
			these = nil
		} else if len(these) == 0 {
			continue
		}
		group.Go(func() {
			err := killWith(ctx, d, these)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, err)
		})
	}
	group.Wait()
	return errors.Join(all...)
}

// killWith ends sandboxes of a driver, nil is all of them: those of one that
// cannot end many at once are destroyed, several at a time.
func killWith(ctx context.Context, d Driver, ids []string) error {
	if k, ok := d.(Killer); ok {
		return k.KillAll(ctx, ids)
	}
	handles, err := d.List(ctx)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	var these []Handle
	for _, h := range handles {
		if ids == nil || wanted[h.ID] {
			these = append(these, h)
		}
	}
	return errors.Join(each(these, func(h Handle) error { return d.Destroy(ctx, h) })...)
}

// freeze pauses a sandbox that did not stand still.
func (s *Sandbox) freeze(ctx context.Context) error {
	err := s.halt(ctx)
	if s.Status().State != StateRunning {
		return fault.New(fault.NotFound, "the sandbox has ended")
	}
	return err
}

// each does something with all of a list, several at a time.
func each[T any](list []T, do func(T) error) []error {
	const most = 32
	errs := make([]error, len(list))
	turns := make(chan struct{}, most)
	var group sync.WaitGroup
	for i, x := range list {
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			errs[i] = do(x)
		})
	}
	group.Wait()
	return errs
}
