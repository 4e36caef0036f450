package httpapi

import (
	"container/list"
	"encoding/base64"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/notary"
	"github.com/aurea-dev/aurea/internal/policy"
)

// Rates is how many requests of a class a key may send in a minute; 0 is no
// bound.
type Rates struct {
	Read, Submit, Exec, Control int
	Failures                    int  // wrong keys from one address
	Local                       bool // callers without a key are bounded too
}

// class is a kind of requests that are counted together.
type class string

const (
	classRead    class = "read"
	classSubmit  class = "submit"
	classExec    class = "exec"
	classControl class = "control"
	// What a sandbox may send with its token.
	classEvents     class = "events"
	classHeartbeats class = "heartbeats"
	classMessages   class = "messages"
	classDefault    class = "default"
)

// bound returns the class in which a request is counted, and how many of it a
// caller may send in a minute; 0 is no bound. Nothing stands in the way of who
// wants to stop something, and workers are bounded by what they have leased.
func (r Rates) bound(c policy.Caller, rt route) (class, int) {
	switch {
	case c.Kind == policy.Local && !r.Local, c.Kind == policy.Worker, rt.action == policy.Stop, rt.action == policy.Rearm, rt.action == policy.Host:
		return "", 0
	case c.Kind == policy.Sandbox:
		return tokenBound(rt.class)
	case rt.class == classExec:
		return classExec, r.Exec
	case rt.action == policy.Read || rt.action == policy.Audit:
		return classRead, r.Read
	case rt.action == policy.Submit || rt.action == policy.Govern:
		return classSubmit, r.Submit
	}
	return classControl, r.Control
}

// tokenBound is bound for the tokens of sandboxes.
func tokenBound(c class) (class, int) {
	switch c { //nolint:exhaustive // the others count together
	case classEvents:
		return c, 100
	case classHeartbeats:
		return c, 10
	case classMessages:
		return c, 30
	}
	return classDefault, 60
}

// maxCounters bounds how many are counted. Who was longest quiet is forgotten
// first, and begins anew.
const maxCounters = 8192

// counters counts requests, each by a bucket that fills up over a minute.
type counters struct {
	mu    sync.Mutex
	by    map[string]*list.Element
	order *list.List // of *counter, the longest quiet at the back
}

type counter struct {
	name   string
	bucket *rate.Limiter
}

func newCounters() *counters { return &counters{by: map[string]*list.Element{}, order: list.New()} }

// bucket returns the one of a name.
func (c *counters) bucket(name string, perMinute int) *rate.Limiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.by[name]; e != nil {
		c.order.MoveToFront(e)
		return e.Value.(*counter).bucket //nolint:forcetypeassert // we put it there
	}
	if c.order.Len() >= maxCounters {
		last := c.order.Back()
		delete(c.by, last.Value.(*counter).name) //nolint:forcetypeassert // we put it there
		c.order.Remove(last)
	}
	n := &counter{name: name, bucket: rate.NewLimiter(rate.Limit(float64(perMinute)/60), perMinute)}
	c.by[name] = c.order.PushFront(n)
	return n.bucket
}

// Limit counts a request of a caller and refuses it when there were too many. It
// says in the header how many may still come.
func (a *API) Limit(w http.ResponseWriter, c policy.Caller, action policy.Action) error {
	return a.limit(w, c, route{action: action})
}

func (a *API) limit(w http.ResponseWriter, c policy.Caller, rt route) error {
	class, most := a.cfg.Rates.bound(c, rt)
	if most == 0 {
		return nil
	}
	now := a.cfg.Now()
	bucket := a.calls.bucket(c.Actor()+" "+string(class), most)
	fits := bucket.AllowN(now, 1)
	left := max(bucket.TokensAt(now), 0)
	full := time.Duration((float64(most) - left) * float64(time.Minute) / float64(most))
	h := w.Header()
	h.Set("RateLimit-Limit", strconv.Itoa(most))
	h.Set("RateLimit-Remaining", strconv.Itoa(int(left)))
	h.Set("RateLimit-Reset", strconv.Itoa(int(math.Ceil(full.Seconds()))))
	if fits {
		return nil
	}
	wait := time.Duration((1 - left) * float64(time.Minute) / float64(most))
	return fault.New(fault.Exhausted, "This key sent more than %d requests of the class %q in a minute; send fewer, or ask for a higher limit.", most, class).WithCode("rate_limited").Retry(wait)
}

// failed counts a wrong key of an address, and makes a refusal of it when there
// were too many. Keys that are good go through all the same: others may come from
// the same address.
//
// The record of it names the key as keys are named, by a part of its hash: it may
// have been good once, or be good elsewhere.
func (a *API) failed(r *http.Request, kind, secret string, err error) error {
	if a.cfg.Audit != nil {
		hash := policy.HashKey(secret)
		name := kind + "-" + base64.RawURLEncoding.EncodeToString(hash[:6])
		a.cfg.Audit.DenyKey(r.Context(), notary.Refusal{Actor: name, Address: addressOf(r), Action: "deny_key", Target: requestOf(r), Why: err})
	}
	if a.cfg.Rates.Failures == 0 || a.failures.bucket(addressOf(r), a.cfg.Rates.Failures).AllowN(a.cfg.Now(), 1) {
		return err
	}
	return a.tooManyFailures()
}

// suspect reports whether an address has shown too many wrong keys to be let
// guess one that is not random.
func (a *API) suspect(r *http.Request) bool {
	return a.cfg.Rates.Failures > 0 && a.failures.bucket(addressOf(r), a.cfg.Rates.Failures).TokensAt(a.cfg.Now()) < 1
}

func (a *API) tooManyFailures() error {
	return fault.New(fault.Exhausted, "Too many wrong keys came from this address; wait a moment.").WithCode("too_many_failures").
		Retry(time.Minute / time.Duration(a.cfg.Rates.Failures))
}

// addressOf is where a request came from. One network of version 6 is one
// address: who has one has all of it.
func addressOf(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "unknown"
	}
	ip := at.Addr().Unmap()
	if ip.Is6() {
		const network = 64
		if p, err := ip.WithZone("").Prefix(network); err == nil {
			return p.String()
		}
	}
	return ip.String()
}
