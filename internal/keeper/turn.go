package keeper

import (
	"context"
	"sync"

	"github.com/aurea-dev/aurea/internal/fault"
)

// turns lets those who make a sandbox stand still, or let it go on, come one after
// the other: each decides by how it stands and by what the law says, and nobody
// may overtake them between that and the deed.
type turns struct {
	mu  sync.Mutex
	all map[string]*turn
}

type turn struct {
	taken chan struct{} // holds one token while somebody has the turn
	users int           // who have it or wait for it
}

// take waits for the turn of a sandbox.
func (t *turns) take(ctx context.Context, id string) (give func(), err error) {
	t.mu.Lock()
	one := t.all[id]
	if one == nil {
		one = &turn{taken: make(chan struct{}, 1)}
		if t.all == nil {
			t.all = map[string]*turn{}
		}
		t.all[id] = one
	}
	one.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(t.all, id)
		}
	}
	select {
	case one.taken <- struct{}{}:
		return func() { <-one.taken; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fault.New(fault.Unavailable, "wait for those who pause or resume the sandbox: %w", context.Cause(ctx))
	}
}
