package trigger

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Hooks are addresses that are called when a trigger fires; "" is none. What is
// told is signed.
type Hooks struct {
	// PreKill is asked before anything is done to a worker, and may abort it.
	PreKill string `json:"pre_kill,omitempty"`
	// Cleanup is told when a worker was killed, for who holds something for it.
	Cleanup string `json:"cleanup,omitempty"`
	// Notify is told that the trigger has fired, and what came of it.
	Notify string `json:"notify,omitempty"`
	// Timeout is how long PreKill may take, from the firing on. Whoever is not
	// heard by then aborts nothing.
	Timeout time.Duration `json:"timeout_ns,omitempty"`
}

// DefaultHookTimeout is how long PreKill may take without a word.
const DefaultHookTimeout = 5 * time.Second

const (
	// MaxHookTimeout is the longest that a hook may be waited for.
	MaxHookTimeout = 30 * time.Second
	maxHookURL     = 2000 // bytes
)

// Each returns the addresses by the names of their fields.
func (h *Hooks) Each() map[string]string {
	return map[string]string{"hooks.pre_kill": h.PreKill, "hooks.cleanup": h.Cleanup, "hooks.notify": h.Notify}
}

func (h *Hooks) check() error {
	for field, address := range h.Each() {
		if len(address) > maxHookURL || !printable(address) {
			return fault.Field(field, "is longer than %d bytes, or no text", maxHookURL)
		}
	}
	if h.Timeout < 0 || h.Timeout > MaxHookTimeout || h.PreKill != "" && h.Timeout == 0 {
		return fault.Field("hooks.timeout_seconds", "must be more than 0 and at most %d", int64(MaxHookTimeout/time.Second))
	}
	return nil
}

// Shown is the hooks as others may see them: an address can be a secret by itself,
// so only whose it is, and whether it is another than before, can be told.
func (h *Hooks) Shown() Hooks {
	return Hooks{PreKill: shown(h.PreKill), Cleanup: shown(h.Cleanup), Notify: shown(h.Notify), Timeout: h.Timeout}
}

func shown(address string) string {
	if address == "" {
		return ""
	}
	const enough = 6 // bytes of a digest
	sum := sha256.Sum256([]byte(address))
	host := ""
	if u, err := url.Parse(address); err == nil {
		host = u.Scheme + "://" + u.Host
	}
	return host + "/… (sha256 " + hex.EncodeToString(sum[:enough]) + ")"
}

// Notice is something that a hook is still to be told.
type Notice struct {
	ID     string // in order of time
	Firing string
	Event  string
	URL    string
	Body   []byte
	Tries  int // that failed
	NextAt time.Time
}

// MaxNotices is how many wait at the most; those that wait longest go first.
const MaxNotices = 10_000

// The events that hooks are told of.
const (
	EventPreKill = "trigger.pre_kill" // something is about to be done
	EventFired   = "trigger.fired"
	EventEnded   = "trigger.ended"   // something came of it
	EventCleanup = "trigger.cleanup" // the worker was killed
)

// told is what a hook is told.
type told struct {
	Type          string    `json:"type"`
	Firing        string    `json:"firing"`
	Trigger       string    `json:"trigger_id"`
	Kind          Kind      `json:"kind"`
	Label         string    `json:"label"`
	Severity      string    `json:"severity"`
	Worker        string    `json:"worker_id"`
	Owner         string    `json:"owner"`
	Value         float64   `json:"value"`
	Threshold     float64   `json:"threshold"`
	BreachSeconds float64   `json:"breach_seconds"`
	Strategy      Strategy  `json:"strategy"`
	By            string    `json:"by"`
	Reason        string    `json:"reason"`
	Outcome       Outcome   `json:"outcome,omitempty"`
	Detail        string    `json:"detail,omitempty"`
	Escalated     bool      `json:"escalated"`
	FiredAt       time.Time `json:"fired_at"`
	EndedAt       time.Time `json:"ended_at,omitzero"`
}

// Tell is the body that tells a hook of an event of the firing.
func (f *Firing) Tell(event string) []byte {
	body, _ := json.Marshal(told{ // of words and finite numbers
		Type: event, Firing: f.ID, Trigger: f.Trigger, Kind: f.Kind, Label: f.Label, Severity: string(f.Severity), Worker: f.Worker, Owner: f.Owner,
		Value: f.Value, Threshold: f.Threshold, BreachSeconds: f.Lasted.Seconds(), Strategy: f.Plan.Strategy, By: f.By, Reason: f.Because(),
		Outcome: f.Outcome, Detail: f.Detail, Escalated: f.Escalated, FiredAt: f.At.UTC(), EndedAt: f.EndedAt.UTC(),
	})
	return body
}

// Notices are what hooks are to be told of the firing as it stands now: that it has
// fired, or what came of it. What the cooldown blocked is not told.
func (f *Firing) Notices() (list []Notice) {
	add := func(event, address string) {
		if address != "" {
			list = append(list, Notice{Firing: f.ID, Event: event, URL: address, Body: f.Tell(event)})
		}
	}
	h := &f.Plan.Hooks
	switch f.Outcome {
	case CooldownBlocked:
	case "":
		add(EventFired, h.Notify)
	case Killed:
		add(EventCleanup, h.Cleanup)
		add(EventEnded, h.Notify)
	case Quarantined, Suspended, AlreadyDead, Failed:
		add(EventEnded, h.Notify)
	}
	return list
}

// The answers of PreKill.
const (
	Allowed    = "allowed"
	Aborted    = "aborted"
	Unanswered = "unanswered" // in time, or in a way that makes sense
)

// ReadAnswer reads what PreKill has answered. Only who says so in plain words
// aborts; the reason that they give is bounded.
func ReadAnswer(reply []byte) (answer, reason string) {
	var said struct {
		Abort  bool   `json:"abort"`
		Reason string `json:"reason"`
	}
	if len(reply) > 0 && json.Unmarshal(reply, &said) != nil {
		return Unanswered, "its answer is no JSON object"
	}
	if !said.Abort {
		return Allowed, ""
	}
	return Aborted, Clip(plain(said.Reason))
}

// plain is a text of others in one line.
func plain(s string) string {
	out := make([]rune, 0, min(len(s), MaxText))
	for _, r := range s {
		if len(out) == MaxText {
			break
		}
		if !printable(string(r)) {
			r = ' '
		}
		out = append(out, r)
	}
	return string(out)
}
