package worker

import (
	"context"
	"sync"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

var (
	errInputClosed = fault.New(fault.Conflict, "the command's input was ended").WithCode("input_closed")
	errInputUnsure = fault.New(fault.Conflict, "the worker was killed while it wrote to the command's input, and how much of it arrived is not known").WithCode("input_unknown")
)

// input is the standard input of a command, counted, so that nothing is written
// twice. One piece is written at a time; it goes on when its caller gives up,
// and who says it again waits for it.
type input struct {
	turn chan struct{} // holds one token while a piece is written

	mu     sync.Mutex
	taken  int64
	closed bool
	unsure bool // how much arrived is not known
}

func newInput() input { return input{turn: make(chan struct{}, 1)} }

// shut says that nothing more can be written.
func (in *input) shut() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
}

// fresh returns the part of a piece that was not taken, and where that begins.
func (in *input) fresh(piece live.Input) (data []byte, at int64, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if piece.Offset == -1 {
		piece.Offset = in.taken
	}
	end := piece.Offset + int64(len(piece.Data))
	switch {
	case in.unsure:
		return nil, 0, errInputUnsure
	case piece.Offset > in.taken:
		return nil, 0, fault.New(fault.Conflict, "the command has taken %d bytes of input; go on from there", in.taken).WithCode(dispatch.CodeInputGap)
	case in.closed && end > in.taken:
		return nil, 0, errInputClosed
	case end <= in.taken:
		return nil, in.taken, nil
	}
	return piece.Data[in.taken-piece.Offset:], in.taken, nil
}

// wrote notes what was taken.
func (in *input) wrote(taken int64, closed bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.taken, in.closed = taken, in.closed || closed
}

func (in *input) isClosed() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.closed
}

// FeedExec writes to a command's input.
func (rc receiver) FeedExec(ctx context.Context, piece live.Input) error {
	if err := dispatch.CheckInput(piece); err != nil {
		return err
	}
	e, err := rc.run.hosted.findExec(ctx, piece.Sandbox, piece.Exec)
	if err != nil {
		return err
	}
	exec, err := e.process()
	if err != nil {
		return err
	}
	if len(piece.Data) == 0 && !piece.Close && piece.Offset < 0 {
		return nil // who asks only whether it is there waits for nobody's input
	}
	select {
	case e.in.turn <- struct{}{}:
	case <-exec.Done():
		return errExecEnded
	case <-ctx.Done():
		return fault.New(fault.Unavailable, "the command does not take its input: %w", context.Cause(ctx))
	}
	data, at, err := e.in.fresh(piece)
	if err != nil || len(data) == 0 && (!piece.Close || e.in.isClosed()) {
		<-e.in.turn
		return err
	}
	wrote := make(chan error, 1)
	e.of.working.Go(func() { //nolint:contextcheck // input that was taken is written, whoever hangs up
		wrote <- e.feed(exec, data, at, piece.Close)
		<-e.in.turn
	})
	select {
	case err := <-wrote:
		return err
	case <-ctx.Done():
		return fault.New(fault.Unavailable, "the command does not take its input: %w", context.Cause(ctx))
	}
}

// took notes that input which came with an order is not held any more.
func (k *kept) took(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unread -= n
}

// feedFirst gives a command the input that came with its order.
//
// Preconditions: nobody else knows of the command.
func (e *keptExec) feedFirst(stdin []byte) {
	if len(stdin) == 0 {
		return
	}
	e.in.turn <- struct{}{}
	exec := e.exec
	e.of.working.Go(func() {
		defer func() { <-e.in.turn }()
		defer e.of.took(len(stdin))
		if err := e.feed(exec, stdin, 0, !e.order.Open); err != nil {
			// One that has ended, or closed its input, tells by its verdict.
			e.of.log.Debug("a command did not take its input", "exec", e.order.ID, "error", err)
		}
	})
}

// feed writes a piece. A later process must know how much may have arrived, so
// that is written down before and after.
//
// Preconditions: the caller holds the turn.
func (e *keptExec) feed(exec *sandbox.Exec, data []byte, at int64, last bool) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(e.of.life))
	defer cancel(nil)
	stopped := make(chan struct{})
	defer func() { <-stopped }()
	go func() {
		defer close(stopped)
		select {
		case <-exec.Done():
			cancel(errExecEnded)
		case <-ctx.Done():
		}
	}()
	defer cancel(nil)
	taken := at + int64(len(data))
	if err := e.out.count(countFeeding, taken); err != nil {
		return err
	}
	var err error
	switch {
	case last && at == 0:
		err = exec.Feed(ctx, data)
	case len(data) > 0:
		if err = exec.Write(ctx, data); err == nil && last {
			err = exec.CloseInput(ctx)
		}
	default:
		err = exec.CloseInput(ctx)
	}
	if err != nil {
		return err
	}
	e.in.wrote(taken, last)
	if last {
		_ = e.out.count(countClosed, 1) // one more close is no harm
	}
	return e.out.count(countFed, taken)
}
