// Package trigger is the noun of rules that watch each worker of the fleet and
// act by themselves: what is watched, from which value on and for how long, what
// is done then, and the record of having done it. It judges values that it is
// given; it measures nothing, stores nothing and ends nobody.
package trigger

import (
	"math"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/manifest"
)

// Kind is what a trigger watches.
type Kind string

// The kinds.
const (
	CPU       Kind = "resource_cpu"     // percent of the processors that the worker may use
	Memory    Kind = "resource_memory"  // megabytes that it uses now
	Disk      Kind = "resource_disk"    // megabytes of files that were written in it and are still there
	Network   Kind = "resource_network" // there is none yet
	Anomaly   Kind = "behavior_anomaly" // nobody judges behaviour yet
	TimeLimit Kind = "time_limit"       // seconds since it started, or was let go on
	Requests  Kind = "request_rate"     // commands begun in its sandbox within Window
	Errors    Kind = "error_rate"       // share of the commands that ended within Window and did not end well
	Manual    Kind = "manual"           // fires when somebody says so
	Custom    Kind = "custom"           // a figure that somebody reports
)

// Kinds lists them.
func Kinds() []Kind {
	return []Kind{CPU, Memory, Disk, Network, Anomaly, TimeLimit, Requests, Errors, Manual, Custom}
}

// Window is the time over which commands are counted, and FewestEnded how many
// must have ended in it before their share of errors says anything.
const (
	Window      = time.Minute
	FewestEnded = 5
)

// CodeUnavailable is the code of the fault with which a trigger is refused that
// would never fire.
const CodeUnavailable = "trigger_unavailable"

// Available refuses a kind that nobody measures: a rule that cannot fire is no
// protection, and must not look like one.
func (k Kind) Available() error {
	why := ""
	switch k {
	case CPU, Memory, Disk, TimeLimit, Requests, Errors, Manual, Custom:
		return nil
	case Network:
		why = "sandboxes have no network yet"
	case Anomaly:
		why = "nothing judges the behaviour of workers yet"
	default:
		return fault.Field("kind", "must be one of %v", Kinds())
	}
	return fault.Field("kind", "%s cannot be watched: %s. Such a trigger would never fire, so it is refused.", k, why).WithCode(CodeUnavailable)
}

// Reported reports whether values of the kind come from outside, by Fire.
func (k Kind) Reported() bool { return k == Manual || k == Custom }

// Strategy is what becomes of a worker.
type Strategy string

// The strategies.
const (
	Graceful   Strategy = "graceful"   // its work is asked to stop, then it ends
	Forceful   Strategy = "forceful"   // it ends
	Quarantine Strategy = "quarantine" // it is put under quarantine
	Suspend    Strategy = "suspend"    // it is frozen, and can be revived
)

// Strategies lists them.
func Strategies() []Strategy { return []Strategy{Graceful, Forceful, Quarantine, Suspend} }

// Plan is what a trigger does when it fires.
type Plan struct {
	Strategy Strategy `json:"strategy"`
	// Timeout is how long the work may take to stop when it is asked to.
	Timeout time.Duration `json:"timeout_ns"`
	// Escalate ends a worker that did not stop in time, or that could not be put
	// under quarantine or frozen.
	Escalate bool `json:"escalate_on_timeout"`
	// Preserve puts aside what there is of a worker before it is ended.
	Preserve bool `json:"preserve_state"`
	// Cooldown is how long after a firing at a worker this trigger does nothing
	// to it.
	Cooldown time.Duration `json:"cooldown_ns"`
	// Hooks are called when it fires.
	Hooks Hooks `json:"hooks,omitzero"`
}

// What is so without a word.
const (
	DefaultTimeout  = 30 * time.Second
	DefaultCooldown = 60 * time.Second
)

// DefaultPlan is the plan of a trigger that says nothing else.
func DefaultPlan() Plan {
	return Plan{Strategy: Graceful, Timeout: DefaultTimeout, Escalate: true, Cooldown: DefaultCooldown, Hooks: Hooks{Timeout: DefaultHookTimeout}}
}

// Trigger is one rule.
type Trigger struct {
	ID    string `json:"id"`
	Kind  Kind   `json:"kind"`
	Label string `json:"label"` // for people
	// Threshold is the value from which on a worker is in breach, in the unit of
	// the kind.
	Threshold float64 `json:"threshold"`
	// Sustained is how long a worker must be in breach without a break.
	Sustained time.Duration     `json:"sustained_ns"`
	Severity  manifest.Severity `json:"severity"`
	Enabled   bool              `json:"enabled"`
	// Contract narrows it to the workers under one; "" is every worker.
	Contract string `json:"contract,omitempty"`
	Preset   string `json:"preset,omitempty"` // that it came from
	Plan     Plan   `json:"plan"`

	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Bounds of triggers.
const (
	MaxTriggers = 100 // that there are
	MaxLabel    = 200 // bytes
	MaxText     = 500 // bytes of a reason or a detail

	maxSustained = 24 * time.Hour
	maxTimeout   = 10 * time.Minute
	maxCooldown  = 24 * time.Hour
	maxSeconds   = 365 * 24 * 3600
	maxMegabytes = 1 << 24
)

// Check refuses what is no trigger, and one that could never fire.
func (t *Trigger) Check() error {
	if err := t.Kind.Available(); err != nil {
		return err
	}
	if len(t.Label) > MaxLabel || !printable(t.Label) {
		return fault.Field("label", "must be text of at most %d bytes in one line", MaxLabel)
	}
	if t.Contract != "" && !manifest.ValidContract(t.Contract) {
		return fault.Field("contract", "is not the name of a contract")
	}
	if _, err := manifest.CheckSeverity(string(t.Severity)); err != nil || t.Severity == "" {
		return fault.Field("severity", "must be one of %v", manifest.Severities())
	}
	if t.Sustained < 0 || t.Sustained > maxSustained {
		return fault.Field("sustained_seconds", "must be from 0 to %d", int64(maxSustained/time.Second))
	}
	if err := t.Plan.check(); err != nil {
		return err
	}
	return t.checkThreshold()
}

func (p *Plan) check() error {
	switch {
	case !slices.Contains(Strategies(), p.Strategy):
		return fault.Field("strategy", "must be one of %v", Strategies())
	case p.Timeout < 0 || p.Timeout > maxTimeout:
		return fault.Field("timeout_seconds", "must be from 0 to %d", int64(maxTimeout/time.Second))
	case p.Cooldown < 0 || p.Cooldown > maxCooldown:
		return fault.Field("cooldown_seconds", "must be from 0 to %d", int64(maxCooldown/time.Second))
	}
	return p.Hooks.check()
}

func (t *Trigger) checkThreshold() error {
	least, most, unit := 0.0, math.MaxFloat64, ""
	switch t.Kind {
	case CPU:
		most, unit = 100, "percent of what the worker may use"
	case Memory, Disk:
		most, unit = maxMegabytes, "megabytes"
	case TimeLimit:
		most, unit = maxSeconds, "seconds"
	case Requests:
		most, unit = 1e9, "commands within a minute"
	case Errors:
		most, unit = 1, "as a share of the commands that ended"
	case Custom:
		if math.IsNaN(t.Threshold) || math.IsInf(t.Threshold, 0) {
			return fault.Field("threshold", "must be a number")
		}
		return nil
	case Manual:
		if t.Threshold != 0 || t.Sustained != 0 {
			return fault.Field("threshold", "does not go with the kind manual, which fires when somebody says so; nor does sustained_seconds")
		}
		return nil
	case Network, Anomaly: // refused before
	}
	if !(t.Threshold > least && t.Threshold <= most) { // not a number is neither
		return fault.Field("threshold", "must be more than %g and at most %g, %s", least, most, unit)
	}
	return nil
}

// Watches reports whether the trigger is about workers under a contract now.
func (t *Trigger) Watches(contract string) bool {
	return t.Enabled && (t.Contract == "" || t.Contract == contract)
}

func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
