package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// call is something that a claimer asked for.
type call struct {
	job     string
	verb    string // claim, complete, heartbeat, read
	fence   int64  // 0 when it was left out
	success bool
	from    int64 // when it was asked, and when it was answered
	until   int64
}

// result is what it was told: what was done, why it was refused, or nothing.
type result struct {
	unknown bool
	code    string // of the refusal; "" is a success
	fence   int64  // of a claim that won
	status  string // of a read
}

// history is everything that the claimers asked, and what they were told.
type history struct {
	began time.Time

	mu  sync.Mutex
	ops []porcupine.Operation
}

func (h *history) now() int64 { return time.Since(h.began).Nanoseconds() }

// ask makes a call and writes it down.
func (h *history) ask(ctx context.Context, k *asker, client int, c call, body any) (result, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return result{}, err
	}
	c.from = h.now()
	a, err := k.ask(ctx, http.MethodPost, "/jobs/"+c.job+"/"+c.verb, raw)
	c.until = h.now()
	var out result
	switch {
	case err != nil || a.status >= http.StatusInternalServerError:
		out.unknown, c.until = true, math.MaxInt64
	case a.status == http.StatusOK:
		var j struct{ Fence int64 }
		if err := json.Unmarshal(a.body, &j); err != nil {
			return out, err
		}
		out.fence = j.Fence
	case a.status == http.StatusConflict:
		out.code = a.problem()
	default:
		return out, fmt.Errorf("%s of %s: %s", c.verb, c.job, a)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: c, Call: c.from, Output: out, Return: c.until})
	return out, nil
}

// claimer takes jobs of its role over plain HTTP until ctx ends. Several share
// one name, so only the queue keeps them apart. Some are slow, some forget to
// come back, some say that they failed, some repeat themselves.
func (h *history) claimer(ctx context.Context, k *asker, client int, r *rand.Rand) error {
	for ctx.Err() == nil {
		var jobs []struct{ ID string }
		if k.get(ctx, "/jobs?status=ASSIGNED&limit=4&role="+claimerRole, &jobs) != nil || len(jobs) == 0 {
			pause(ctx, 20*time.Millisecond)
			continue
		}
		id := jobs[r.IntN(len(jobs))].ID
		claim, err := h.ask(ctx, k, client, call{job: id, verb: "claim"}, claimerID)
		if err != nil {
			return err
		}
		if claim.unknown || claim.code != "" || r.IntN(40) == 0 {
			continue
		}
		pause(ctx, time.Duration(r.IntN(60))*time.Millisecond)
		if err := h.finish(ctx, k, client, r, id, claim.fence); err != nil {
			return err
		}
	}
	return nil
}

// finish ends a job that was claimed.
func (h *history) finish(ctx context.Context, k *asker, client int, r *rand.Rand, id string, fence int64) error {
	if r.IntN(10) == 0 {
		if _, err := h.ask(ctx, k, client, call{job: id, verb: "heartbeat", fence: fence}, map[string]any{"worker_id": claimerID, "fence": fence}); err != nil {
			return err
		}
	}
	if r.IntN(25) == 0 {
		pause(ctx, leaseTerm+time.Second) // too late
	}
	c := call{job: id, verb: "complete", success: r.IntN(20) > 0}
	body := map[string]any{"success": c.success, "details": map[string]any{"snapshot": "/elsewhere/" + id + ".tar"}}
	if r.IntN(2) == 0 {
		c.fence = fence
		body["fence"] = fence
	}
	for range 1 + r.IntN(3) {
		out, err := h.ask(ctx, k, client, c, body)
		if err != nil {
			return err
		}
		if !out.unknown && r.IntN(8) > 0 {
			return nil
		}
	}
	return nil
}

// seat is where one job stands, as far as claimers can tell.
type seat struct {
	held, done bool
	fence      int64 // the current number, or one that it is above
	exact      bool
	since      int64 // when the lease began or was last extended, at the earliest
}

// step says where a job can stand after a call was answered so. A lease that
// ran out may have been taken away at any time before that.
func (s seat) step(c call, out result) (next []any) {
	for _, from := range s.expired(c.until) {
		switch {
		case !out.unknown:
			if to, ok := from.answer(c, out); ok {
				next = append(next, to)
			}
		default:
			next = append(next, from) // it was lost, or refused
			if to, ok := from.answer(c, result{fence: -1}); ok {
				next = append(next, to)
			}
		}
	}
	return next
}

// expired adds what a reaper can have made of it by then.
func (s seat) expired(by int64) []seat {
	if !s.overdue(by) {
		return []seat{s}
	}
	return []seat{s, {fence: s.fence + 1, exact: s.exact}}
}

func (s seat) overdue(by int64) bool { return s.held && by-s.since >= int64(leaseTerm) }

// answer says whether the answer fits, and what follows.
func (s seat) answer(c call, out result) (seat, bool) {
	mine := c.fence == 0 || c.fence == s.fence || !s.exact
	switch c.verb + " " + out.code {
	case "claim ":
		fits := !s.held && !s.done && (out.fence == -1 || out.fence > s.fence)
		return seat{held: true, fence: max(out.fence, s.fence+1), exact: out.fence > 0, since: c.from}, fits
	case "claim already_taken":
		return s, s.held
	case "claim not_ready":
		return s, !s.held && !s.done
	case "claim wrong_state":
		return s, s.done
	case "heartbeat ":
		s.since = c.from
		return s, s.held && mine
	case "complete ":
		return seat{done: c.success, fence: s.fence, exact: s.exact}, s.held && mine
	case "complete stale_fence", "heartbeat stale_fence":
		return s, c.fence != 0 && (c.fence != s.fence || !s.exact)
	case "complete wrong_state", "heartbeat wrong_state":
		return s, mine && !s.held
	case "complete lease_expired":
		return s, c.fence == 0 && s.overdue(c.until)
	case "read ":
		return s, s.done == (out.status == "COMPLETED")
	}
	return s, false
}

// check demands that for each job some order of the calls, one after the
// other, explains all answers.
func (h *history) check(t *testing.T) {
	t.Helper()
	model := (&porcupine.NondeterministicModel{
		Init:  func() []any { return []any{seat{exact: true}} },
		Step:  func(s, in, out any) []any { return s.(seat).step(in.(call), out.(result)) },
		Equal: func(a, b any) bool { return a == b },
	}).ToModel()
	byJob := map[string][]porcupine.Operation{}
	for _, op := range h.ops {
		id := op.Input.(call).job
		byJob[id] = append(byJob[id], op)
	}
	unknown := 0
	for id, ops := range byJob {
		for _, op := range ops {
			if op.Output.(result).unknown {
				unknown++
			}
		}
		if got := porcupine.CheckOperationsTimeout(model, ops, patience/3); got != porcupine.Ok {
			t.Errorf("the history of job %s is %s:", id, got)
			slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
			for _, op := range ops {
				t.Logf("  %v..%v claimer %d: %+v -> %+v", time.Duration(op.Call), time.Duration(op.Return), op.ClientId, op.Input, op.Output)
			}
		}
	}
	t.Logf("claimers: %d calls about %d jobs, %d of them without an answer", len(h.ops), len(byJob), unknown)
}
