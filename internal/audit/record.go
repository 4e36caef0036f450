// Package audit is the noun of what was decided and who acted: records that
// are only ever appended, each a leaf of one Merkle tree (RFC 6962), so that
// whoever holds an older checkpoint can tell whether the past was bent.
//
// It has the record, its canonical form, the tree, checkpoints and the
// verifier; it stores nothing and decides nothing. Whoever decides appends a
// record through the store, in the transaction of what it decided. Secrets are
// kept out by whoever appends.
package audit

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Category is what a record is about.
type Category string

// The categories.
const (
	Policy     Category = "policy"     // a decision: allowed or denied
	Violation  Category = "violation"  // a bound was broken
	KillSwitch Category = "killswitch" // the switch, its levels and its re-arming
	Quarantine Category = "quarantine"
	Escalation Category = "escalation"
	Access     Category = "access" // keys, and control over what runs
	Config     Category = "config" // settings, retention, the log itself
	Alert      Category = "alert"
)

// Categories lists them.
func Categories() []Category {
	return []Category{Policy, Violation, KillSwitch, Quarantine, Escalation, Access, Config, Alert}
}

// Severity is how much a record matters.
type Severity string

// The severities.
const (
	Info     Severity = "info"
	Warning  Severity = "warning"
	Critical Severity = "critical"
)

// Severities lists them.
func Severities() []Severity { return []Severity{Info, Warning, Critical} }

// What became of an action.
const (
	Done   = "done"
	Denied = "denied"
	Failed = "failed"
)

// Record is one decision or control action. Its number counts from 1 without
// gaps; the log gives it.
type Record struct {
	Seq       int64
	At        time.Time
	Category  Category
	Severity  Severity // "" becomes info
	Action    string   // what was done or decided: "worker_registered", "deny_quota", "job.cancel"
	Message   string
	Source    string // the part of Aurea that decided: governor, queue, keeper, kill switch
	Actor     string // the caller's id
	Target    string // the id of what it was done to
	Outcome   string // done, denied, failed; "" becomes done
	RequestID string
	Before    json.RawMessage   // how the target stood; small
	After     json.RawMessage   // how it stands
	Metadata  map[string]string // a few more facts
}

// Bounds of a record. What is longer is cut, and states that are larger are
// left out: an action is never refused because its record is long.
const (
	MaxName     = 256 // bytes of Action, Source, Actor, Target, Outcome, RequestID and the names of Metadata
	MaxMessage  = 2 << 10
	MaxState    = 8 << 10 // of Before and of After
	MaxMetadata = 32      // entries, of which those that come first by name stay
	MaxValue    = 1 << 10 // of Metadata
)

// Seal makes of a record what the log keeps: numbered, dated, within the
// bounds, in text that every database gives back as it was. Sealing again
// changes nothing. A category or severity that there is not is an error.
func (r *Record) Seal(seq int64, now time.Time) error {
	if !slices.Contains(Categories(), r.Category) {
		return fmt.Errorf("seal audit record: there is no category %q", r.Category)
	}
	if r.Severity == "" {
		r.Severity = Info
	}
	if !slices.Contains(Severities(), r.Severity) {
		return fmt.Errorf("seal audit record: there is no severity %q", r.Severity)
	}
	if r.Outcome == "" {
		r.Outcome = Done
	}
	if r.At.IsZero() {
		r.At = now
	}
	r.Seq, r.At = seq, r.At.UTC().Truncate(time.Microsecond)
	for _, name := range []*string{&r.Action, &r.Source, &r.Actor, &r.Target, &r.Outcome, &r.RequestID} {
		*name = cut(*name, MaxName)
	}
	r.Message = cut(r.Message, MaxMessage)
	r.Before, r.After = state(r.Before), state(r.After)
	r.Metadata = metadata(r.Metadata)
	return nil
}

// Bytes is what a record of a page counts for.
func (r *Record) Bytes() int {
	n := len(r.Message) + len(r.Before) + len(r.After)
	for k, v := range r.Metadata {
		n += len(k) + len(v)
	}
	return n
}

// cut makes text UTF-8 without zero bytes, of at most max bytes.
func cut(text string, limit int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// state is a Before or After in canonical form.
func state(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	if len(raw) <= 4*MaxState { // far larger ones are not worth the reading
		text, err := canonicalJSON(raw)
		switch {
		case err == nil && string(text) == "null":
			return nil
		case err == nil && len(text) <= MaxState:
			return text
		}
	}
	return json.RawMessage(fmt.Sprintf(`{"omitted_bytes":%d}`, len(raw)))
}

func metadata(all map[string]string) map[string]string {
	if len(all) == 0 {
		return nil
	}
	kept := make(map[string]string, min(len(all), MaxMetadata))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if len(kept) == MaxMetadata {
			break
		}
		kept[cut(name, MaxName)] = cut(all[name], MaxValue)
	}
	return kept
}

// Filter chooses records. The zero Filter matches all.
type Filter struct {
	After      int64 // only records with a larger Seq
	Before     int64 // only records with a smaller Seq; 0 is no bound
	Categories []Category
	Severities []Severity
	Actions    []string
	Actor      string
	Target     string
	Outcome    string
	RequestID  string
	From, To   time.Time // From is the first moment, To the first that is not; zero is no bound
	Newest     bool      // the newest first; it changes the order only
}

// Matches reports whether the filter lets r through. Stores must agree with it.
func (f Filter) Matches(r *Record) bool {
	return r.Seq > f.After && (f.Before == 0 || r.Seq < f.Before) &&
		(len(f.Categories) == 0 || slices.Contains(f.Categories, r.Category)) &&
		(len(f.Severities) == 0 || slices.Contains(f.Severities, r.Severity)) &&
		(len(f.Actions) == 0 || slices.Contains(f.Actions, r.Action)) &&
		(f.Actor == "" || r.Actor == f.Actor) &&
		(f.Target == "" || r.Target == f.Target) &&
		(f.Outcome == "" || r.Outcome == f.Outcome) &&
		(f.RequestID == "" || r.RequestID == f.RequestID) &&
		(f.From.IsZero() || !r.At.Before(f.From)) &&
		(f.To.IsZero() || r.At.Before(f.To))
}
