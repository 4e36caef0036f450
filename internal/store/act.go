package store

import (
	"context"
	"encoding/json"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/policy"
)

// Act is an act of control, for its record in the audit.
type Act struct {
	Source string // the part that does it
	Action string // "noun.verb"
	Target string // the id of what it is done to
	Reason string
	// Outcome is done where it is left out.
	Outcome string
	// Before and After are what matters of how the target stands.
	Before, After map[string]any
}

// Acted appends the record of an act by the caller in ctx, in the transaction
// of the act. What the manager does by itself, without a caller, has none.
func Acted(ctx context.Context, tx Tx, a Act) error {
	c, ok := policy.From(ctx)
	if !ok || c == policy.System() {
		return nil
	}
	return tx.Audit().Append(ctx, &audit.Record{
		Category: audit.Access, Action: a.Action, Source: a.Source, Actor: c.Actor(), Target: a.Target, Message: a.Reason, Outcome: a.Outcome,
		Before: stateOf(a.Before), After: stateOf(a.After),
	})
}

func stateOf(facts map[string]any) json.RawMessage {
	if len(facts) == 0 {
		return nil
	}
	text, err := json.Marshal(facts)
	if err != nil {
		return nil // of words and numbers, which always can be written
	}
	return text
}
