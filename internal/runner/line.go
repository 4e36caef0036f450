package runner

import (
	"slices"
	"time"
)

// ticket is a run that waits for a worker, or is at one.
type ticket struct {
	id     string
	owner  string
	driver string // "" is any
	// worker is the only one that will do: it has the run already. "" is any.
	worker string
	since  time.Time
	// grant is told which worker has taken it, once.
	grant func(seat)
	// urgent goes before the others of its owner: it had its turn, and the
	// worker had no room after all.
	urgent bool
}

// place is a worker, as far as room for runs is concerned.
type place struct {
	Worker
	busy int       // runs that are there
	full time.Time // until then it is not asked: it said that it has no room
}

// seat is a turn at a place: the worker as it was when the turn was given.
type seat struct {
	Worker
	at *place
}

// room reports whether one more run may be sent there.
func (p *place) room(now time.Time) bool { return p.busy < max(p.Slots, 1) && !now.Before(p.full) }

// line is who waits. Turns go round between owners, so that one who queues
// hundreds keeps nobody else waiting for more than one turn; each owner's own
// runs go in order.
//
// It has no lock of its own: its user holds one.
type line struct {
	owners []string // in order of their turns; each has somebody waiting
	queues map[string][]*ticket
	length int
	// took is how long runs took of late, for estimates.
	took time.Duration
}

func newLine() *line { return &line{queues: map[string][]*ticket{}} }

// enter puts a ticket at the end of its owner's queue, or at its front.
func (l *line) enter(t *ticket) {
	q, waiting := l.queues[t.owner]
	if !waiting {
		l.owners = append(l.owners, t.owner)
	}
	if t.urgent {
		q = slices.Insert(q, 0, t)
	} else {
		q = append(q, t)
	}
	l.queues[t.owner] = q
	l.length++
}

// lookAhead bounds how far an owner's queue is searched for a run that some
// worker can take: what waits for a worker of its own must not hold up the rest.
const lookAhead = 64

// next takes the ticket whose turn it is out of the line, with its worker; nil
// when none of those who wait can be served now.
func (l *line) next(choose func(*ticket) *place) (*ticket, *place) {
	for turn, owner := range l.owners {
		q := l.queues[owner]
		for i, t := range q[:min(len(q), lookAhead)] {
			p := choose(t)
			if p == nil {
				continue
			}
			l.owners = slices.Delete(l.owners, turn, turn+1)
			if l.cut(owner, i) {
				l.owners = append(l.owners, owner)
			}
			return t, p
		}
	}
	return nil, nil
}

// cut takes a ticket out of an owner's queue and reports whether others are
// left in it.
func (l *line) cut(owner string, i int) bool {
	q := slices.Delete(l.queues[owner], i, i+1)
	l.length--
	if len(q) == 0 {
		delete(l.queues, owner)
		return false
	}
	l.queues[owner] = q
	return true
}

// leave takes a ticket out of the line; it reports whether it was there.
func (l *line) leave(t *ticket) bool {
	i := slices.Index(l.queues[t.owner], t)
	if i < 0 {
		return false
	}
	if !l.cut(t.owner, i) {
		l.owners = slices.DeleteFunc(l.owners, func(o string) bool { return o == t.owner })
	}
	return true
}

// position is how many turns come before a ticket's, 0 for the next; -1 when it
// does not wait.
func (l *line) position(t *ticket) int {
	own := slices.Index(l.queues[t.owner], t)
	if own < 0 {
		return -1
	}
	ahead, before := own, true
	for _, owner := range l.owners {
		if owner == t.owner {
			before = false
			continue
		}
		turns := own // that owner has had when ours comes
		if before {
			turns++
		}
		ahead += min(len(l.queues[owner]), turns)
	}
	return ahead
}

// wait is about how long a ticket with so many before it waits.
func (l *line) wait(position, slots int) time.Duration {
	if position < 0 {
		return 0
	}
	return l.took * time.Duration(position+1) / time.Duration(max(slots, 1))
}

// ended notes how long a run took.
func (l *line) ended(took time.Duration) {
	if l.took == 0 {
		l.took = took
		return
	}
	l.took += (took - l.took) / 8
}
