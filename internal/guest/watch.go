package guest

import (
	"context"
	"errors"
	"io"
	"path"
	"sync"

	"github.com/aurea-dev/aurea/internal/guest/wire"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Watch tells of changes to files. It implements sandbox.Watch.
type Watch struct {
	p    *Process
	name string
	once sync.Once

	// life ends with Close, whoever waits in Next then.
	life context.Context
	end  context.CancelCauseFunc

	mu   sync.Mutex // held by who calls Next
	said []byte     // what has come and was not told yet
}

var _ sandbox.Watch = (*Watch)(nil)

// Watch begins to watch a path.
func (c *Client) Watch(ctx context.Context, name string, recursive bool) (*Watch, error) {
	if err := c.knows(ctx, wire.KindWatch); err != nil {
		return nil, err
	}
	p, err := c.open(ctx, wire.Open{Kind: wire.KindWatch, Path: name, File: wire.File{Recursive: recursive, Length: -1}})
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	return &Watch{p: p, name: name, life: life, end: end}, nil
}

// Next implements sandbox.Watch.
func (w *Watch) Next(ctx context.Context) (sandbox.Change, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.life, func() { cancel(io.EOF) })() //nolint:contextcheck // a watch has a life of its own
	for {
		if w.life.Err() != nil {
			return sandbox.Change{}, io.EOF
		}
		change, rest, whole, err := wire.NextChange(w.said)
		if err != nil {
			return sandbox.Change{}, errNonsense(err)
		}
		if w.said = rest; whole {
			return w.words(change), nil
		}
		frame, err := w.p.pull(ctx)
		if errors.Is(context.Cause(ctx), io.EOF) {
			return sandbox.Change{}, io.EOF
		}
		if err != nil {
			return sandbox.Change{}, err
		}
		if frame.Stream == sandbox.Stdout {
			w.said = append(w.said, frame.Data...)
		}
	}
}

// words puts a change into the words of package sandbox.
func (w *Watch) words(c wire.Change) sandbox.Change {
	kinds := map[wire.ChangeKind]string{
		wire.ChangeCreated: sandbox.ChangeCreated, wire.ChangeModified: sandbox.ChangeModified,
		wire.ChangeDeleted: sandbox.ChangeDeleted, wire.ChangeRenamed: sandbox.ChangeRenamed,
		wire.ChangeOverflow: sandbox.ChangeOverflow,
	}
	change := sandbox.Change{Kind: kinds[c.Kind], Path: path.Join(w.name, c.Name), Type: typeOf(c.Type)}
	if c.Kind == wire.ChangeRenamed {
		change.From = path.Join(w.name, c.From)
	}
	return change
}

// Close implements sandbox.Watch.
func (w *Watch) Close() error {
	w.once.Do(func() {
		w.end(io.EOF)
		w.p.leave()
	})
	return nil
}

// leave lets go of what stands open in the guest.
func (p *Process) leave() {
	select {
	case <-p.exited:
	case <-p.client.done:
	default:
		p.abort(context.Background())
	}
	p.client.unregister(p)
}
