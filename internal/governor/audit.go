package governor

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// What became of what was decided.
const (
	outcomeDone   = audit.Done
	outcomeDenied = audit.Denied
)

// entry is a decision for the audit.
type entry struct {
	action  string
	target  string
	outcome string
	message string
	about   string
	meta    map[string]string
	before  json.RawMessage
	after   json.RawMessage
}

// audit writes a decision down, in the transaction that it is made in.
func (g *Governor) audit(ctx context.Context, tx store.Tx, e entry) error {
	r := &audit.Record{
		At: g.now(), Category: audit.Policy, Action: e.action, Message: e.message, Source: "governor", Actor: policy.ActorOf(ctx), Target: e.target, RequestID: audit.RequestOf(ctx),
		Outcome: e.outcome, Before: e.before, After: e.after, Metadata: e.meta,
	}
	if e.about != "" {
		if r.Metadata == nil {
			r.Metadata = map[string]string{}
		}
		r.Metadata["decision"] = e.about
	}
	switch {
	case e.action == DenyKillSwitch:
		r.Category, r.Severity = audit.KillSwitch, audit.Warning
	case strings.HasPrefix(e.action, "quarantine") || strings.HasSuffix(e.action, "_quarantined"):
		r.Category, r.Severity = audit.Quarantine, audit.Warning
	case e.action == RejectSignature || e.action == RejectReplay || e.action == DenyDepthSpoof || e.action == "resource_breach":
		r.Category, r.Severity = audit.Violation, audit.Critical
	case e.action == "contract_put" || strings.HasPrefix(e.action, "manifest_key"):
		r.Category = audit.Config
	case e.outcome == outcomeDenied:
		r.Severity = audit.Warning
	}
	return tx.Audit().Append(ctx, r)
}

// paperMeta is what the audit keeps of a paper: nothing of the state that a
// worker is given along, which may hold anything.
func paperMeta(w *manifest.Worker) map[string]string {
	m := &w.Manifest
	return map[string]string{
		"contract": w.Terms.Contract, "owner": w.Terms.Owner, "parent_id": m.ParentID, "depth": strconv.Itoa(m.Depth),
		"cpu_limit": strconv.FormatFloat(m.Resources.CPULimit, 'g', -1, 64), "memory_limit_mb": strconv.FormatInt(m.Resources.MemoryLimitMB, 10),
	}
}
