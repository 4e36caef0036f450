package notary

import (
	"context"
	"strconv"
	"time"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store"
)

// The bounds of what those who are refused again and again can make us write.
const (
	denyEvery  = 10 * time.Second // for one who is known, and one action
	wrongEvery = time.Minute      // for one wrong key from one address
	// Wrong keys cost nothing to make up, so their records are bounded for one
	// address and for all of them, in each minute.
	wrongOfOne = 5
	wrongOfAll = 20
	maxDenied  = 1024
	denyWithin = 5 * time.Second
)

// Refusal is that somebody was not let do something.
type Refusal struct {
	Actor   string
	Kind    string // of the caller; "" is not known
	Address string // where it came from; "" is not said
	Action  string // "deny_…" for want of permission, "refuse_…" for a state that forbids it
	Target  string
	Request string // method and path
	Why     error
}

// denied is who was refused what.
type denied struct{ actor, action string }

// refusals counts those that have no record of their own.
type refusals struct {
	since time.Time
	more  int
}

// wrongKeys counts the records about wrong keys of a minute.
type wrongKeys struct {
	since time.Time
	by    map[string]int // address
	all   int
	more  int // that were beyond a bound
}

// Deny records a refusal. Of those that repeat within a moment only the first
// gets a record; the next one says how many there were.
func (n *Notary) Deny(ctx context.Context, r Refusal) {
	audit.Note(ctx) // counted is noted
	n.mu.Lock()
	more, first := n.first(denied{r.Actor, r.Action}, denyEvery)
	n.mu.Unlock()
	if first {
		n.refused(ctx, r, audit.Policy, more)
	}
}

// DenyKey records that a key was refused: once in a minute for the same key from
// the same address, and never more than a few of one address, or of all. Those
// beyond that are counted in the next.
func (n *Notary) DenyKey(ctx context.Context, r Refusal) {
	audit.Note(ctx)
	n.mu.Lock()
	more, write := n.firstWrong(r)
	n.mu.Unlock()
	if write {
		n.refused(ctx, r, audit.Access, more)
	}
}

// first reports whether a refusal is to have a record, and how many before it
// have none. The caller holds mu.
func (n *Notary) first(who denied, every time.Duration) (more int, first bool) {
	now := n.Now()
	last, ok := n.denied[who]
	if ok && now.Sub(last.since) < every {
		last.more++
		n.denied[who] = last
		return 0, false
	}
	if n.denied == nil || len(n.denied) >= maxDenied {
		n.denied = map[denied]refusals{}
	}
	n.denied[who] = refusals{since: now}
	return last.more, true
}

// firstWrong is first for a wrong key.
func (n *Notary) firstWrong(r Refusal) (more int, first bool) {
	now, w := n.Now(), &n.wrong
	if now.Sub(w.since) >= wrongEvery {
		*w = wrongKeys{since: now, by: map[string]int{}, more: w.more}
	}
	if w.all >= wrongOfAll || w.by[r.Address] >= wrongOfOne {
		w.more++
		return 0, false
	}
	if more, first = n.first(denied{r.Address + " " + r.Actor, r.Action}, wrongEvery); !first {
		return 0, false
	}
	more += w.more
	w.by[r.Address]++
	w.all, w.more = w.all+1, 0
	return more, true
}

// refused writes the record of a refusal.
func (n *Notary) refused(ctx context.Context, f Refusal, category audit.Category, more int) {
	r := &audit.Record{
		At: n.Now(), Category: category, Severity: audit.Warning, Action: f.Action, Source: "access", Actor: f.Actor, Target: f.Target, Outcome: audit.Denied,
		Message: f.Why.Error(), Metadata: map[string]string{"code": fault.CodeOf(f.Why)},
	}
	for name, value := range map[string]string{"kind": f.Kind, "address": f.Address, "request": f.Request} {
		if value != "" {
			r.Metadata[name] = value
		}
	}
	if more > 0 {
		r.Metadata["repeated"] = strconv.Itoa(more)
	}
	// Who hangs up cannot stay off the record.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), denyWithin)
	defer cancel()
	if err := n.Store.Update(bounded, func(tx store.Tx) error { return tx.Audit().Append(bounded, r) }); err != nil {
		n.Logger.Error("could not record a refusal", "actor", r.Actor, "action", r.Action, "target", r.Target, "error", err)
	}
}
