package dispatchtest

import (
	"slices"

	"github.com/aurea-dev/aurea/internal/killswitch"
)

// Stop has the manager say this of the kill switch from now on.
func (r *Reference) Stop(s killswitch.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stops = s
}

// Tripped are the switches that workers said were engaged at their machines.
func (r *Reference) Tripped() []killswitch.Switch {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.tripped)
}

// trip engages what a worker tells of, once.
func (r *Reference) trip(all []killswitch.Switch) killswitch.State {
	for _, one := range all {
		same := func(x killswitch.Switch) bool { return x.ID == one.ID }
		if slices.ContainsFunc(r.tripped, same) || slices.ContainsFunc(r.stops.Engaged, same) {
			continue
		}
		r.tripped = append(r.tripped, one)
		r.stops = killswitch.State{Seq: r.stops.Seq + 1, Engaged: append(slices.Clone(r.stops.Engaged), one)}
	}
	return r.stops
}
