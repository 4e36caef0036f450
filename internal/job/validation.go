package job

import (
	"fmt"
	"math"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Bounds of a validation.
const (
	MaxTicks = 1000
	MaxNote  = 4000
)

// Validation is what a validator says of submitted work.
type Validation struct {
	WorkerID   string
	Ticks      []Tick
	Confidence float64 // from 0 to 1
}

// Tick is one thing that a validator looked at.
type Tick struct {
	Type   string `json:"tick_type"`
	Passed bool   `json:"passed"`
	Note   string `json:"note,omitempty"`
}

// Check refuses a validation that says nothing, or that cannot be read. The
// fault names the field.
func (v Validation) Check() error {
	if strings.TrimSpace(v.WorkerID) == "" {
		return fault.Field("worker_id", "is missing: say which validator speaks")
	}
	if err := checkText("worker_id", v.WorkerID, MaxWord); err != nil {
		return err
	}
	if math.IsNaN(v.Confidence) || v.Confidence < 0 || v.Confidence > 1 {
		return fault.Field("confidence", "must be from 0 to 1")
	}
	if len(v.Ticks) == 0 || len(v.Ticks) > MaxTicks {
		return fault.Field("ticks", "must have 1 to %d entries", MaxTicks)
	}
	for i, t := range v.Ticks {
		field := fmt.Sprintf("ticks[%d]", i)
		if strings.TrimSpace(t.Type) == "" {
			return fault.Field(field+".tick_type", "must not be empty")
		}
		if err := checkText(field+".tick_type", t.Type, MaxWord); err != nil {
			return err
		}
		if err := checkText(field+".note", t.Note, MaxNote); err != nil {
			return err
		}
	}
	return nil
}

// Passes reports whether the work is accepted: every tick passed, and with
// enough confidence.
func (v Validation) Passes() bool {
	for _, t := range v.Ticks {
		if !t.Passed {
			return false
		}
	}
	return len(v.Ticks) > 0 && v.Confidence >= PassConfidence
}
