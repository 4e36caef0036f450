package wire

import (
	"context"
	"io"
	"math/rand/v2"
	"sync/atomic"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
)

var _ dispatch.Manager = (*Failover)(nil)

// Failover is several managers that share a database, as one. It speaks with
// one of them until that is away, and then with the next: a session is good at
// all of them. Like a Client it repeats nothing; what failed is the worker's to
// say again, and then goes to the next.
type Failover struct {
	clients []*Client
	turn    atomic.Int64 // the one that is spoken with, counted on
	seconds seconds
}

// NewFailover returns a client of the managers at these addresses. It begins
// with any of them, so that many workers spread over many managers.
func NewFailover(urls []string, key string, opts Options) (*Failover, error) {
	f := &Failover{}
	for _, url := range urls {
		c, err := NewClient(url, key, opts)
		if err != nil {
			return nil, err
		}
		f.clients = append(f.clients, c)
	}
	if len(f.clients) == 0 {
		return nil, fault.Field("manager_url", "names no manager")
	}
	f.turn.Store(rand.Int64N(int64(len(f.clients)))) //nolint:gosec // nobody gains by guessing it
	return f, nil
}

// with lets fn speak with the current manager. When that is away the next one
// becomes current, unless another call has seen to it.
func (f *Failover) with(ctx context.Context, fn func(*Client) error) error {
	turn := f.turn.Load()
	err := fn(f.clients[int(turn%int64(len(f.clients)))])
	if fault.Is(err, fault.Unavailable) && ctx.Err() == nil {
		f.turn.CompareAndSwap(turn, turn+1)
	}
	return err
}

// Close drops the connections that no call uses.
func (f *Failover) Close() {
	for _, c := range f.clients {
		c.Close()
	}
}

// Register implements dispatch.Manager.
func (f *Failover) Register(ctx context.Context, r dispatch.Registration) (w dispatch.Welcome, err error) {
	err = f.with(ctx, func(c *Client) (err error) { w, err = c.Register(ctx, r); return err })
	return w, err
}

// Lease implements dispatch.Manager.
func (f *Failover) Lease(ctx context.Context, req dispatch.LeaseRequest) (ls []dispatch.Lease, err error) {
	err = f.with(ctx, func(c *Client) (err error) { ls, err = c.Lease(ctx, req); return err })
	return ls, err
}

// Extend implements dispatch.Manager.
func (f *Failover) Extend(ctx context.Context, req dispatch.ExtendRequest) (a dispatch.ExtendAnswer, err error) {
	err = f.with(ctx, func(c *Client) (err error) { a, err = c.Extend(ctx, req); return err })
	return a, err
}

// Report implements dispatch.Manager.
func (f *Failover) Report(ctx context.Context, req dispatch.ReportRequest) (r dispatch.Refusals, err error) {
	err = f.with(ctx, func(c *Client) (err error) { r, err = c.Report(ctx, req); return err })
	return r, err
}

// Finish implements dispatch.Manager.
func (f *Failover) Finish(ctx context.Context, req dispatch.FinishRequest) (r dispatch.Refusals, err error) {
	err = f.with(ctx, func(c *Client) (err error) { r, err = c.Finish(ctx, req); return err })
	return r, err
}

// Tell implements dispatch.Manager.
func (f *Failover) Tell(ctx context.Context, req dispatch.TellRequest) error {
	return f.with(ctx, func(c *Client) error { return c.Tell(ctx, req) })
}

// PutBlob implements dispatch.Manager.
func (f *Failover) PutBlob(ctx context.Context, session, sha256 string, size int64, r io.Reader) error {
	return f.with(ctx, func(c *Client) error { return c.PutBlob(ctx, session, sha256, size, r) })
}

// Attend implements dispatch.Manager. Every manager gets a second stream too,
// and keeps it when the first one breaks: what is under way there goes on.
func (f *Failover) Attend(ctx context.Context, session string, rc dispatch.Receiver) error {
	if len(f.clients) > 1 {
		f.seconds.keep(ctx, f.clients, session, rc)
	}
	err := f.with(ctx, func(c *Client) error { return c.Attend(ctx, session, rc) })
	if ctx.Err() != nil {
		f.seconds.open.Wait()
	}
	return err
}

// Leave implements dispatch.Manager.
func (f *Failover) Leave(ctx context.Context, session string) error {
	return f.with(ctx, func(c *Client) error { return c.Leave(ctx, session) })
}
