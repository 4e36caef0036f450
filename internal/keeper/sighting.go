package keeper

import "time"

// sightings is for how long things have stood as they do, by this manager's own
// clock: what other managers wrote down has the time of theirs, which may go
// wrong. One goroutine at a time looks.
type sightings struct {
	// within bounds the time between two looks, where it is set. After a longer
	// one, because the database was away or this manager stood still, all counting
	// begins anew: nobody else could have written anything, or been seen to.
	within time.Duration

	looked      time.Time
	now, before map[string]sighting
}

type sighting struct {
	as    time.Time // what was written
	since time.Time // when that was seen first
	sure  bool      // it need not be looked into any more
}

// look begins a round. What is not seen in it is forgotten.
func (s *sightings) look(now time.Time) {
	s.before = s.now
	if gap := now.Sub(s.looked); gap < 0 || s.within > 0 && gap > s.within {
		s.before = nil
	}
	s.looked, s.now = now, make(map[string]sighting, len(s.before))
}

// see returns how something is seen in this round, and for how long it has stood
// like that.
func (s *sightings) see(id string, as time.Time) (x sighting, unchanged time.Duration) {
	x, known := s.before[id]
	if !known || !x.as.Equal(as) {
		x = sighting{as: as, since: s.looked}
	}
	s.now[id] = x
	return x, s.looked.Sub(x.since)
}

// settle notes that something need not be looked into any more.
func (s *sightings) settle(id string) {
	x := s.now[id]
	x.sure = true
	s.now[id] = x
}
