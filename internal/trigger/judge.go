package trigger

import "time"

// Breach is that a worker is in breach of a trigger, from its beginning until
// its value falls below the threshold again.
type Breach struct {
	Trigger string
	Worker  string
	Since   time.Time
	// FiredAt is when the trigger fired because of it; zero is that it has not.
	// One breach fires once.
	FiredAt time.Time
	// BlockedAt is when it would have fired, but for the cooldown.
	BlockedAt time.Time
}

// Step is what follows from a value.
type Step int

// The steps.
const (
	Hold  Step = iota // nothing
	Begin             // a breach begins
	Clear             // it is over
	Fire              // it has lasted long enough
	Block             // so it has, and the worker has its cooldown
)

// Value is one figure of one worker. What was not measured is not known, and
// changes nothing: neither does it end a breach, nor does it begin one.
type Value struct {
	Is    float64
	Known bool
}

// Judge says what follows from a value. before is the breach so far, and nil
// where there is none; last is when anything last fired at the worker, and
// zero where nothing did. It returns the breach as it is then, which counts for
// Begin, Fire and Block.
//
// A clock that is set back makes a breach begin anew, so that nothing fires
// early, and ends a cooldown, so that nothing is put off for as long as that.
func (t *Trigger) Judge(before *Breach, v Value, last, now time.Time) (Breach, Step) {
	switch {
	case !v.Known:
		return Breach{}, Hold
	case v.Is < t.Threshold && before == nil:
		return Breach{}, Hold
	case v.Is < t.Threshold:
		return *before, Clear
	}
	b, step := Breach{Trigger: t.ID, Since: now}, Begin
	if before != nil {
		b, step = *before, Hold
	}
	if b.Since.After(now) {
		b.Since, step = now, Begin
	}
	if !b.FiredAt.IsZero() || now.Sub(b.Since) < t.Sustained {
		return b, step
	}
	if !last.IsZero() && !last.After(now) && now.Sub(last) < t.Plan.Cooldown {
		if b.BlockedAt.IsZero() {
			b.BlockedAt, step = now, Block
		}
		return b, step
	}
	b.FiredAt = now
	return b, Fire
}

// Renew lets a breach fire again, after the cooldown: what was done because of
// it failed.
func (b *Breach) Renew(now time.Time) { b.FiredAt, b.BlockedAt = time.Time{}, now }
