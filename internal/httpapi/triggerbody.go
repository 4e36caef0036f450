package httpapi

import (
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/trigger"
)

// AddTriggerBody makes a trigger.
type AddTriggerBody struct {
	Kind             string   `json:"kind" enum:"resource_cpu,resource_memory,resource_disk,resource_network,behavior_anomaly,time_limit,request_rate,error_rate,manual,custom" doc:"What it watches. resource_network and behavior_anomaly are refused: nobody measures them yet."`
	Label            string   `json:"label,omitempty" maxLength:"200" doc:"For people."`
	Threshold        *float64 `json:"threshold,omitempty" doc:"From which value on a worker is in breach: percent of the processors that it may use, megabytes, seconds, commands within a minute, or the share of commands that failed within a minute (0 to 1). None for manual."`
	SustainedSeconds *float64 `json:"sustained_seconds,omitempty" minimum:"0" doc:"How long a worker must be in breach without a break; 0 where it is left out."`
	Severity         string   `json:"severity,omitempty" enum:"low,medium,high,critical" doc:"medium where it is left out."`
	Enabled          *bool    `json:"enabled,omitempty" doc:"true where it is left out."`
	Contract         string   `json:"contract,omitempty" doc:"Only for workers under this contract."`
	Strategy         string   `json:"strategy,omitempty" enum:"graceful,forceful,quarantine,suspend" doc:"What becomes of a worker; graceful where it is left out."`
	TimeoutSeconds   *float64 `json:"timeout_seconds,omitempty" minimum:"0" doc:"With graceful: how long its work may take to stop; 30 where it is left out."`
	Escalate         *bool    `json:"escalate_on_timeout,omitempty" doc:"Whether a worker is killed that does not stop in time, or cannot be brought to a stand; true where it is left out."`
	PreserveState    *bool    `json:"preserve_state,omitempty" doc:"Whether its record and its files are put aside before it is ended; false where it is left out."`
	CooldownSeconds  *float64 `json:"cooldown_seconds,omitempty" minimum:"0" doc:"How long after any firing at a worker this trigger does nothing to it; 60 where it is left out."`

	Hooks *TriggerHooksBody `json:"hooks,omitempty" doc:"Addresses that are called when it fires."`
}

// TriggerHooksBody are the hooks of a trigger. What is left out stays.
type TriggerHooksBody struct {
	PreKill        *string  `json:"pre_kill,omitempty" maxLength:"2000" doc:"Asked before anything is done to a worker; an answer {\"abort\":true,\"reason\":…} in time keeps it from that. An empty text is none."`
	Cleanup        *string  `json:"cleanup,omitempty" maxLength:"2000" doc:"Told when a worker was killed."`
	Notify         *string  `json:"notify,omitempty" maxLength:"2000" doc:"Told that it has fired, and what came of it."`
	TimeoutSeconds *float64 `json:"timeout_seconds,omitempty" minimum:"0" doc:"How long pre_kill may take from the firing on, at most 30; 5 where it is left out. Who has not answered by then aborts nothing."`
}

func (b *TriggerHooksBody) change(h *trigger.Hooks) error {
	if b == nil {
		return nil
	}
	set(&h.PreKill, b.PreKill)
	set(&h.Cleanup, b.Cleanup)
	set(&h.Notify, b.Notify)
	d, err := seconds("hooks.timeout_seconds", b.TimeoutSeconds)
	set(&h.Timeout, d)
	return err
}

// ChangeTriggerBody changes a trigger. What is left out stays.
type ChangeTriggerBody struct {
	Label            *string  `json:"label,omitempty" maxLength:"200"`
	Threshold        *float64 `json:"threshold,omitempty"`
	SustainedSeconds *float64 `json:"sustained_seconds,omitempty" minimum:"0"`
	Severity         string   `json:"severity,omitempty" enum:"low,medium,high,critical"`
	Enabled          *bool    `json:"enabled,omitempty"`
	Strategy         string   `json:"strategy,omitempty" enum:"graceful,forceful,quarantine,suspend"`
	TimeoutSeconds   *float64 `json:"timeout_seconds,omitempty" minimum:"0"`
	Escalate         *bool    `json:"escalate_on_timeout,omitempty"`
	PreserveState    *bool    `json:"preserve_state,omitempty"`
	CooldownSeconds  *float64 `json:"cooldown_seconds,omitempty" minimum:"0"`

	Hooks *TriggerHooksBody `json:"hooks,omitempty"`
}

func (b *AddTriggerBody) change(t *trigger.Trigger) error {
	if b.Threshold == nil && t.Kind != trigger.Manual {
		return fault.Field("threshold", "is missing")
	}
	t.Contract = b.Contract
	c := ChangeTriggerBody{
		Label: &b.Label, Threshold: b.Threshold, SustainedSeconds: b.SustainedSeconds, Severity: b.Severity, Enabled: b.Enabled, Strategy: b.Strategy,
		TimeoutSeconds: b.TimeoutSeconds, Escalate: b.Escalate, PreserveState: b.PreserveState, CooldownSeconds: b.CooldownSeconds, Hooks: b.Hooks,
	}
	return c.change(t)
}

func (b *ChangeTriggerBody) change(t *trigger.Trigger) error {
	set(&t.Label, b.Label)
	set(&t.Threshold, b.Threshold)
	set(&t.Enabled, b.Enabled)
	set(&t.Plan.Escalate, b.Escalate)
	set(&t.Plan.Preserve, b.PreserveState)
	if b.Severity != "" {
		t.Severity = manifest.Severity(b.Severity)
	}
	if b.Strategy != "" {
		t.Plan.Strategy = trigger.Strategy(b.Strategy)
	}
	for _, x := range []struct {
		field string
		from  *float64
		into  *time.Duration
	}{{"sustained_seconds", b.SustainedSeconds, &t.Sustained}, {"timeout_seconds", b.TimeoutSeconds, &t.Plan.Timeout}, {"cooldown_seconds", b.CooldownSeconds, &t.Plan.Cooldown}} {
		d, err := seconds(x.field, x.from)
		if err != nil {
			return err
		}
		set(x.into, d)
	}
	return b.Hooks.change(&t.Plan.Hooks)
}

// set changes what something was said about.
func set[T any](into, from *T) {
	if from != nil {
		*into = *from
	}
}

// TriggerRuleBody is what a trigger watches, and what it does.
type TriggerRuleBody struct {
	Kind             string  `json:"kind"`
	Label            string  `json:"label"`
	Threshold        float64 `json:"threshold"`
	SustainedSeconds float64 `json:"sustained_seconds"`
	Severity         string  `json:"severity" enum:"low,medium,high,critical"`
	Strategy         string  `json:"strategy" enum:"graceful,forceful,quarantine,suspend"`
	TimeoutSeconds   float64 `json:"timeout_seconds"`
	Escalate         bool    `json:"escalate_on_timeout"`
	PreserveState    bool    `json:"preserve_state"`
	CooldownSeconds  float64 `json:"cooldown_seconds"`

	Hooks ShownHooksBody `json:"hooks"`
}

// ShownHooksBody are the hooks of a trigger as they are shown: an address can be a
// secret by itself.
type ShownHooksBody struct {
	PreKill        *string `json:"pre_kill" doc:"Whose it is, with a part of the address's digest; null is none."`
	Cleanup        *string `json:"cleanup"`
	Notify         *string `json:"notify"`
	TimeoutSeconds float64 `json:"timeout_seconds"`
}

func hooksBody(h trigger.Hooks) ShownHooksBody {
	return ShownHooksBody{PreKill: orNull(h.PreKill), Cleanup: orNull(h.Cleanup), Notify: orNull(h.Notify), TimeoutSeconds: h.Timeout.Seconds()}
}

func ruleBody(t *trigger.Trigger) TriggerRuleBody {
	return TriggerRuleBody{
		Kind: string(t.Kind), Label: t.Label, Threshold: t.Threshold, SustainedSeconds: t.Sustained.Seconds(), Severity: string(t.Severity),
		Strategy: string(t.Plan.Strategy), TimeoutSeconds: t.Plan.Timeout.Seconds(), Escalate: t.Plan.Escalate, PreserveState: t.Plan.Preserve,
		CooldownSeconds: t.Plan.Cooldown.Seconds(), Hooks: hooksBody(t.Plan.Hooks.Shown()),
	}
}

// TriggerBody is a trigger.
type TriggerBody struct {
	ID string `json:"id"`
	TriggerRuleBody
	Enabled   bool      `json:"enabled"`
	Contract  *string   `json:"contract" doc:"Whose workers it is about; null is every worker."`
	Preset    *string   `json:"preset" doc:"That it came from."`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

func triggerBody(t *trigger.Trigger) TriggerBody {
	return TriggerBody{
		ID: t.ID, TriggerRuleBody: ruleBody(t), Enabled: t.Enabled, Contract: orNull(t.Contract), Preset: orNull(t.Preset),
		CreatedAt: t.CreatedAt.UTC(), UpdatedAt: t.UpdatedAt.UTC(),
	}
}

// PresetBody is a set of triggers to start from.
type PresetBody struct {
	Name     string              `json:"name"`
	Triggers []PresetTriggerBody `json:"triggers" nullable:"false"`
}

// PresetTriggerBody is a trigger of a preset.
type PresetTriggerBody struct {
	TriggerRuleBody
	Available bool `json:"available" doc:"Whether it can be watched; what cannot is left out."`
}

// ApplyPresetBody says for whom a preset is.
type ApplyPresetBody struct {
	Contract string `json:"contract,omitempty" doc:"Only for workers under this contract."`
}

// AppliedPresetBody is what was made of a preset.
type AppliedPresetBody struct {
	Triggers []TriggerBody `json:"triggers" nullable:"false"`
	LeftOut  []LeftOutBody `json:"left_out" nullable:"false" doc:"What cannot be watched yet."`
}

// LeftOutBody is a trigger that would never fire.
type LeftOutBody struct {
	Kind      string  `json:"kind"`
	Threshold float64 `json:"threshold"`
	Why       string  `json:"why"`
}

// FireTriggerBody fires a trigger at a worker.
type FireTriggerBody struct {
	TriggerID string   `json:"trigger_id" maxLength:"100" doc:"One of the kind manual or custom."`
	Value     *float64 `json:"value,omitempty" doc:"For custom: the figure, which is held against the threshold."`
	Reason    string   `json:"reason,omitempty" maxLength:"500" doc:"Why, for the record."`
}

// FiredBody is what came of it.
type FiredBody struct {
	Fired    bool        `json:"fired" doc:"Whether something is done to the worker because of it."`
	InBreach bool        `json:"in_breach" doc:"Whether the worker is in breach of the trigger."`
	Firing   *FiringBody `json:"firing" doc:"The record; null where nothing fired."`
}

// FiringBody is what a trigger did to a worker.
type FiringBody struct {
	ID             string     `json:"id"`
	TriggerID      string     `json:"trigger_id"`
	Kind           string     `json:"kind"`
	Label          string     `json:"label"`
	Severity       string     `json:"severity" enum:"low,medium,high,critical"`
	WorkerID       string     `json:"worker_id"`
	Value          float64    `json:"value"`
	Threshold      float64    `json:"threshold"`
	BreachSeconds  float64    `json:"breach_seconds" doc:"How long the worker had been in breach."`
	Strategy       string     `json:"strategy" enum:"graceful,forceful,quarantine,suspend"`
	By             string     `json:"by" doc:"Who fired it; system is that it fired by itself."`
	Reason         string     `json:"reason"`
	Outcome        *string    `json:"outcome" enum:"killed,quarantined,suspended,cooldown_blocked,already_dead,failed" doc:"null while it is under way."`
	Detail         *string    `json:"detail" doc:"What went wrong."`
	Escalated      bool       `json:"escalated" doc:"Whether the worker was killed because it would not stop."`
	StatePreserved bool       `json:"state_preserved"`
	PreKill        *string    `json:"pre_kill" doc:"What the hook answered that was asked first: allowed, aborted or unanswered; null where none was."`
	FiredAt        time.Time  `json:"fired_at"`
	AskedAt        *time.Time `json:"asked_at" doc:"When its work was asked to stop."`
	Deadline       *time.Time `json:"deadline" doc:"When its work must have stopped."`
	EndedAt        *time.Time `json:"ended_at"`
}

func firingBody(f *trigger.Firing) FiringBody {
	return FiringBody{
		ID: f.ID, TriggerID: f.Trigger, Kind: string(f.Kind), Label: f.Label, Severity: string(f.Severity), WorkerID: f.Worker, Value: f.Value,
		Threshold: f.Threshold, BreachSeconds: f.Lasted.Seconds(), Strategy: string(f.Plan.Strategy), By: f.By, Reason: f.Because(),
		Outcome: orNull(string(f.Outcome)), Detail: orNull(f.Detail), Escalated: f.Escalated, StatePreserved: f.Preserved, PreKill: orNull(f.PreKill), FiredAt: f.At.UTC(),
		AskedAt: timeOrNull(f.AskedAt), Deadline: timeOrNull(f.Deadline), EndedAt: timeOrNull(f.EndedAt),
	}
}
