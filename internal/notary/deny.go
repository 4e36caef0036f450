package notary

import (
	"context"
	"strconv"
	"time"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// The bounds of what one who is refused again and again can make us write.
const (
	denyEvery  = 10 * time.Second
	maxDenied  = 1024
	denyWithin = 5 * time.Second
)

// denied is who was refused what.
type denied struct{ actor, action string }

// refusals counts those that have no record of their own.
type refusals struct {
	since time.Time
	more  int
}

// Deny records that a caller was refused something for want of permission. Of
// those that repeat within a moment only the first gets a record; the next one
// says how many there were.
func (n *Notary) Deny(ctx context.Context, c policy.Caller, action, target string, refusal error) {
	who, now := denied{c.Actor(), action}, n.Now()
	n.mu.Lock()
	last, ok := n.denied[who]
	if ok && now.Sub(last.since) < denyEvery {
		last.more++
		n.denied[who] = last
		n.mu.Unlock()
		return
	}
	if n.denied == nil || len(n.denied) >= maxDenied {
		n.denied = map[denied]refusals{}
	}
	n.denied[who] = refusals{since: now}
	n.mu.Unlock()

	r := &audit.Record{
		At: now, Category: audit.Policy, Severity: audit.Warning, Action: action, Source: "access", Actor: c.Actor(), Target: target, Outcome: audit.Denied,
		Message: refusal.Error(), Metadata: map[string]string{"kind": string(c.Kind), "code": fault.CodeOf(refusal)},
	}
	if last.more > 0 {
		r.Metadata["repeated"] = strconv.Itoa(last.more)
	}
	// Who hangs up cannot stay off the record.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), denyWithin)
	defer cancel()
	if err := n.Store.Update(bounded, func(tx store.Tx) error { return tx.Audit().Append(bounded, r) }); err != nil {
		n.Logger.Error("could not record a refusal", "actor", r.Actor, "action", action, "target", target, "error", err)
	}
}
