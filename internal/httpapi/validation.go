package httpapi

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/job"
)

// ValidateBody is what a validator says of submitted work.
type ValidateBody struct {
	WorkerID   string   `json:"worker_id,omitempty" maxLength:"100" doc:"The validator who speaks."`
	Ticks      Ticks    `json:"ticks" doc:"What was looked at: a list, or an object from name to verdict."`
	Confidence *float64 `json:"confidence" nullable:"false" minimum:"0" maximum:"1" doc:"How sure the validator is."`
}

// Ticks are the verdicts of a validator, in one of the forms in which they are
// sent.
type Ticks []job.Tick

// Tick is one verdict of the list form. Each pair of names says the same.
type Tick struct {
	TickType string  `json:"tick_type,omitempty" doc:"What was looked at, such as tests."`
	Type     string  `json:"type,omitempty" doc:"Another name for tick_type."`
	Result   *Passed `json:"result,omitempty" doc:"Whether it passed."`
	Passed   *Passed `json:"passed,omitempty" doc:"Another name for result."`
	Note     string  `json:"note,omitempty" maxLength:"4000"`
}

// Passed is true or false, or one of the words for them.
type Passed bool

// Schema describes the forms.
func (Passed) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeBoolean}, {Type: huma.TypeString, Enum: []any{"pass", "passed", "fail", "failed"}},
	}}
}

func (p *Passed) bind(b *binding, path string, raw json.RawMessage) {
	switch kind(raw) {
	case "true or false":
		*p = string(raw) == "true"
		return
	case "a string":
		switch strings.ToLower(text(raw)) {
		case "pass", "passed":
			*p = true
			return
		case "fail", "failed":
			return
		}
	}
	b.wrong(path, "must be true, false, \"pass\" or \"fail\"")
}

// Schema describes the forms.
func (Ticks) Schema(r huma.Registry) *huma.Schema {
	most := job.MaxTicks
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeArray, Items: r.Schema(reflect.TypeFor[Tick](), true, "Tick"), MaxItems: &most},
		{Type: huma.TypeObject, AdditionalProperties: r.Schema(reflect.TypeFor[Passed](), true, "Passed")},
	}}
}

func (t *Ticks) bind(b *binding, path string, raw json.RawMessage) {
	switch kind(raw) {
	case "a list":
		t.list(b, path, raw)
	case "an object":
		t.object(b, path, raw)
	default:
		b.wrong(path, "must be a list of ticks, or an object from name to verdict")
	}
}

func (t *Ticks) list(b *binding, path string, raw json.RawMessage) {
	var ticks []Tick
	b.list(path, raw, reflect.ValueOf(&ticks).Elem(), job.MaxTicks)
	for i, tick := range ticks {
		at := element(path, i)
		name, err := one(member(at, "tick_type"), tick.TickType, tick.Type)
		switch {
		case err != nil:
			b.wrong(member(at, "tick_type"), "is there as type too, and differs")
		case (tick.Result == nil) == (tick.Passed == nil):
			b.wrong(member(at, "result"), "is missing, or there as passed too")
		case tick.Result != nil:
			*t = append(*t, job.Tick{Type: name, Passed: bool(*tick.Result), Note: tick.Note})
		default:
			*t = append(*t, job.Tick{Type: name, Passed: bool(*tick.Passed), Note: tick.Note})
		}
	}
}

func (t *Ticks) object(b *binding, path string, raw json.RawMessage) {
	fields := members(raw)
	if len(fields) > job.MaxTicks {
		b.wrong(path, "has more than %d ticks", job.MaxTicks)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var p Passed
		p.bind(b, member(path, name), fields[name])
		*t = append(*t, job.Tick{Type: name, Passed: bool(p)})
	}
}
