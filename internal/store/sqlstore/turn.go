package sqlstore

import (
	"context"

	"github.com/aurea-dev/aurea/internal/store"
)

// Call is one call of Update that waits for its turn. The adapter's writer
// gives it turns; the goroutine of the caller runs fn in them, so that a panic
// or a runtime.Goexit of fn meets the caller and never the writer.
type Call struct {
	turns chan turn  // writer → caller
	ran   chan Ended // caller → writer, once after each turn with a Querier
}

// turn is what to run fn on, or without it the answer.
type turn struct {
	q   Querier
	err error
}

// Ended says how fn ended in a turn.
type Ended struct {
	Appended int // events
	Err      error
	Gone     bool // fn panicked or left its goroutine: nobody waits for an answer
}

// NewCall returns a call that has had no turn yet.
func NewCall() *Call { return &Call{turns: make(chan turn, 1), ran: make(chan Ended, 1)} }

// Wait runs fn whenever the writer says so, and returns the answer: that of the
// writer if it is an error, else fn's own. fn may run again when another call
// broke the transaction that the two shared.
func (c *Call) Wait(ctx context.Context, fn func(store.Tx) error) error {
	var err error
	for {
		t := <-c.turns
		switch {
		case t.q != nil:
			err = c.try(ctx, t.q, fn)
		case t.err != nil:
			return t.err
		default:
			return err
		}
	}
}

func (c *Call) try(ctx context.Context, q Querier, fn func(store.Tx) error) (err error) {
	tx := New(q)
	e := Ended{Gone: true}
	defer func() {
		e.Appended = tx.Appended()
		c.ran <- e
	}()
	if err = ctx.Err(); err == nil {
		err = fn(tx)
	}
	e.Gone, e.Err = false, err
	return err
}

// Run lets fn run on q and says how it ended.
func (c *Call) Run(q Querier) Ended {
	c.turns <- turn{q: q}
	return <-c.ran
}

// Answer ends the call. It is not for one that is gone.
func (c *Call) Answer(err error) { c.turns <- turn{err: err} }
