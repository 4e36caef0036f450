package keeper

import (
	"sync"

	"github.com/aurea-dev/aurea/internal/live"
)

// recently is how many execs are kept at hand.
const recently = 256

// recent has the execs at hand that were started or have ended last, as they were
// written down by this manager: who starts one and waits for its end need not ask
// the database twice. That one runs may be out of date; that it has ended is not.
type recent struct {
	mu    sync.Mutex
	execs map[string]live.Exec
	order []string // oldest first
}

// add takes in what was written down.
func (r *recent) add(execs ...live.Exec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.execs == nil {
		r.execs = map[string]live.Exec{}
	}
	for _, e := range execs {
		known, ok := r.execs[e.ID]
		if !ok {
			r.order = append(r.order, e.ID)
		}
		if known.State != live.Done {
			r.execs[e.ID] = e
		}
	}
	for len(r.order) > recently {
		delete(r.execs, r.order[0])
		r.order = r.order[1:]
	}
}

// get returns an exec that is at hand.
func (r *recent) get(id string) (live.Exec, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.execs[id]
	return e, ok
}
