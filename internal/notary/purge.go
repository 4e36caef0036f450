package notary

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// purgeBatch is how many records go in one transaction.
const purgeBatch = 2000

// PurgeAudit removes the records whose time is over, for those who may, and
// leaves a record of it in the same transaction. The hashes stay, so that the
// log can be verified as before.
func (n *Notary) PurgeAudit(ctx context.Context, reason string) (purged int64, err error) {
	c, err := allow(ctx, policy.Purge)
	if err != nil {
		return 0, err
	}
	if n.Keep <= 0 {
		return 0, fault.New(fault.Conflict, "the audit is kept for good; the setting keep_audit says how long").WithCode("kept")
	}
	if _, err := n.Sign(ctx); err != nil { // what goes was whole when it went
		return 0, fault.New(fault.Conflict, "the audit is not purged, since it does not verify: %w", err).WithCode("audit_tampered")
	}
	for {
		var batch int64
		err := n.Store.Update(ctx, func(tx store.Tx) (err error) {
			before := n.Now().Add(-n.Keep)
			if batch, err = tx.Audit().Purge(ctx, before, purgeBatch); err != nil || batch == 0 {
				return err
			}
			through, err := tx.Audit().Floor(ctx)
			if err != nil {
				return err
			}
			after, err := json.Marshal(audit.Purged{Through: through})
			if err != nil {
				return fmt.Errorf("write the record of a purge: %w", err)
			}
			return tx.Audit().Append(ctx, &audit.Record{
				At: n.Now(), Category: audit.Config, Severity: audit.Warning, Action: audit.PurgeAction, Source: "notary", Actor: c.ID, Target: "audit",
				Message: reason, After: after, Metadata: map[string]string{"records": strconv.FormatInt(batch, 10)},
			})
		})
		if err != nil {
			return purged, err
		}
		if purged += batch; batch < purgeBatch {
			break
		}
	}
	if purged == 0 {
		return 0, fault.New(fault.Denied, "no record is older than %s yet", n.Keep).WithCode("retention")
	}
	return purged, nil
}
