package httpapi

import (
	"context"
	"net/http"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trigger"
	"github.com/aurea-dev/aurea/internal/watchman"
)

// Triggers watch the fleet. Each call finds its caller in ctx, as with Manager.
type Triggers interface {
	Triggers(ctx context.Context) ([]trigger.Trigger, error)
	Trigger(ctx context.Context, id string) (trigger.Trigger, error)
	AddTrigger(ctx context.Context, t trigger.Trigger) (trigger.Trigger, error)
	ChangeTrigger(ctx context.Context, id string, change func(t *trigger.Trigger) error) (trigger.Trigger, error)
	RemoveTrigger(ctx context.Context, id string) error
	ApplyPreset(ctx context.Context, name, contract string) ([]trigger.Trigger, []watchman.LeftOut, error)
	Fire(ctx context.Context, worker, id string, value *float64, reason string) (watchman.Report, error)
	// Firings lists what triggers did, newest first.
	Firings(ctx context.Context, f store.FiringFilter) ([]trigger.Firing, error)
}

func (a *API) registerTriggers() {
	const path, tag, one = "/fleet/triggers", "fleet", "/fleet/triggers/{trigger}"
	register(a, route{
		method: http.MethodGet, path: path, action: policy.Read, id: "listTriggers", tag: tag, summary: "List the triggers, oldest first",
	}, a.listTriggers)
	register(a, route{
		method: http.MethodPost, path: path, action: policy.Manage, id: "addTrigger", tag: tag, status: http.StatusCreated, summary: "Make a trigger",
		detail: "It watches every worker of the fleet, or those under a contract, from now on. One that could never fire, because nobody measures what it is about, is 422 trigger_unavailable.",
		body:   AddTriggerBody{}, example: map[string]any{"kind": "resource_cpu", "threshold": 80, "sustained_seconds": 10, "strategy": "suspend"},
	}, a.addTrigger)
	register(a, route{
		method: http.MethodGet, path: path + "/presets", action: policy.Read, id: "listTriggerPresets", tag: tag, summary: "List the sets of triggers to start from",
	}, a.listPresets)
	register(a, route{
		method: http.MethodPost, path: path + "/presets/{preset}", action: policy.Manage, id: "applyTriggerPreset", tag: tag, summary: "Make the triggers of a preset",
		detail: "In place of those that it made before. What cannot be watched yet is left out, and named.", body: ApplyPresetBody{}, optional: true,
	}, a.applyPreset)
	register(a, route{
		method: http.MethodGet, path: path + "/firings", action: policy.Read, id: "listTriggerFirings", tag: tag, summary: "List what triggers did, newest first",
	}, a.listFirings)
	register(a, route{
		method: http.MethodGet, path: one, action: policy.Read, id: "getTrigger", tag: tag, summary: "Look at a trigger",
	}, a.getTrigger)
	register(a, route{
		method: http.MethodPatch, path: one, action: policy.Manage, id: "changeTrigger", tag: tag, summary: "Change a trigger",
		detail: "What is left out stays. Workers that are in breach of it begin anew.", body: ChangeTriggerBody{},
	}, a.changeTrigger)
	register(a, route{
		method: http.MethodDelete, path: one, action: policy.Manage, id: "removeTrigger", tag: tag, summary: "Remove a trigger",
		detail: "What it has begun goes on.",
	}, a.removeTrigger)
	register(a, route{
		method: http.MethodPost, path: "/fleet/workers/{worker}/fire", action: policy.Govern, id: "fireTrigger", tag: tag, summary: "Fire a trigger at a worker, or report a value to it",
		detail: "For triggers of the kinds manual and custom. What follows begins at once, and is not waited for.", body: FireTriggerBody{},
	}, a.fireTrigger)
	register(a, route{
		method: http.MethodPost, path: "/fleet/workers/{worker}/revive", action: policy.Govern, id: "reviveFleetWorker", tag: tag, summary: "Let a worker go on, and let all triggers begin anew with it",
		detail: "One that is suspended or under quarantine. What has ended stays dead, with 409.", body: ReasonBody{}, optional: true,
	}, a.reviveWorker)
}

type (
	triggersOutput struct {
		Body []TriggerBody `nullable:"false"`
	}
	triggerOutput struct{ Body TriggerBody }
	triggerPath   struct {
		Exchange
		ID string `path:"trigger" maxLength:"100" doc:"The id of the trigger."`
	}
)

func (a *API) listTriggers(ctx context.Context, _ *struct{ Exchange }) (*triggersOutput, error) {
	list, err := a.cfg.Triggers.Triggers(ctx)
	if err != nil {
		return nil, err
	}
	out := &triggersOutput{Body: []TriggerBody{}}
	for i := range list {
		out.Body = append(out.Body, triggerBody(&list[i]))
	}
	return out, nil
}

func triggerAnswer(t trigger.Trigger, err error) (*triggerOutput, error) {
	if err != nil {
		return nil, err
	}
	return &triggerOutput{Body: triggerBody(&t)}, nil
}

func (a *API) addTrigger(ctx context.Context, in *struct{ Exchange }) (*triggerOutput, error) {
	var b AddTriggerBody
	if err := in.into(&b); err != nil {
		return nil, err
	}
	t := trigger.Trigger{Kind: trigger.Kind(b.Kind), Severity: manifest.Medium, Enabled: true, Plan: trigger.DefaultPlan()}
	if err := t.Kind.Available(); err != nil { // before anything is said of its figures
		return nil, err
	}
	if err := b.change(&t); err != nil {
		return nil, err
	}
	return triggerAnswer(a.cfg.Triggers.AddTrigger(ctx, t))
}

func (a *API) getTrigger(ctx context.Context, in *triggerPath) (*triggerOutput, error) {
	if err := checkTriggerID(in.ID); err != nil {
		return nil, err
	}
	return triggerAnswer(a.cfg.Triggers.Trigger(ctx, in.ID))
}

func (a *API) changeTrigger(ctx context.Context, in *triggerPath) (*triggerOutput, error) {
	var b ChangeTriggerBody
	if err := in.into(&b); err != nil {
		return nil, err
	}
	if err := checkTriggerID(in.ID); err != nil {
		return nil, err
	}
	return triggerAnswer(a.cfg.Triggers.ChangeTrigger(ctx, in.ID, b.change))
}

func (a *API) removeTrigger(ctx context.Context, in *triggerPath) (*struct{}, error) {
	if err := checkTriggerID(in.ID); err != nil {
		return nil, err
	}
	return nil, a.cfg.Triggers.RemoveTrigger(ctx, in.ID)
}

// checkTriggerID lets nothing near the database that cannot be an id.
func checkTriggerID(id string) error {
	if checkPrintable("trigger", id) != nil {
		return fault.New(fault.NotFound, "There is no such trigger.")
	}
	return nil
}

type presetsOutput struct {
	Body []PresetBody `nullable:"false"`
}

func (a *API) listPresets(context.Context, *struct{ Exchange }) (*presetsOutput, error) {
	out := &presetsOutput{Body: []PresetBody{}}
	for _, p := range trigger.Presets() {
		b := PresetBody{Name: p.Name, Triggers: []PresetTriggerBody{}}
		for i := range p.Triggers {
			t := &p.Triggers[i]
			b.Triggers = append(b.Triggers, PresetTriggerBody{TriggerRuleBody: ruleBody(t), Available: t.Kind.Available() == nil})
		}
		out.Body = append(out.Body, b)
	}
	return out, nil
}

type (
	presetPath struct {
		Exchange
		Name string `path:"preset" maxLength:"40" doc:"conservative, aggressive or quarantine."`
	}
	appliedOutput struct{ Body AppliedPresetBody }
)

func (a *API) applyPreset(ctx context.Context, in *presetPath) (*appliedOutput, error) {
	var b ApplyPresetBody
	if err := in.maybeInto(&b); err != nil {
		return nil, err
	}
	made, left, err := a.cfg.Triggers.ApplyPreset(ctx, in.Name, b.Contract)
	if err != nil {
		return nil, err
	}
	out := AppliedPresetBody{Triggers: []TriggerBody{}, LeftOut: []LeftOutBody{}}
	for i := range made {
		out.Triggers = append(out.Triggers, triggerBody(&made[i]))
	}
	for i := range left {
		out.LeftOut = append(out.LeftOut, LeftOutBody{Kind: string(left[i].Kind), Threshold: left[i].Threshold, Why: left[i].Why})
	}
	return &appliedOutput{Body: out}, nil
}

type firingsInput struct {
	Exchange
	Worker  string `query:"worker" maxLength:"100" doc:"Only those at a worker."`
	Trigger string `query:"trigger" maxLength:"100" doc:"Only those of a trigger."`
	Outcome string `query:"outcome" enum:"killed,quarantined,suspended,cooldown_blocked,already_dead,failed" doc:"Only those with an outcome."`
	Before  string `query:"before" maxLength:"100" doc:"Only older ones, for the next page: the id of the last."`
	Limit   int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most so many."`
}

type firingsOutput struct {
	Body []FiringBody `nullable:"false"`
}

func (a *API) listFirings(ctx context.Context, in *firingsInput) (*firingsOutput, error) {
	for _, text := range []string{in.Worker, in.Trigger, in.Before} {
		if err := checkPrintable("query", text); err != nil {
			return nil, err
		}
	}
	list, err := a.cfg.Triggers.Firings(ctx, store.FiringFilter{
		Worker: in.Worker, Trigger: in.Trigger, Outcome: trigger.Outcome(in.Outcome), Before: in.Before, Limit: in.Limit,
	})
	if err != nil {
		return nil, err
	}
	out := &firingsOutput{Body: []FiringBody{}}
	for i := range list {
		out.Body = append(out.Body, firingBody(&list[i]))
	}
	return out, nil
}

type firedOutput struct{ Body FiredBody }

func (a *API) fireTrigger(ctx context.Context, in *FleetPath) (*firedOutput, error) {
	var b FireTriggerBody
	if err := in.into(&b); err != nil {
		return nil, err
	}
	if err := checkPrintable("trigger_id", b.TriggerID); err != nil {
		return nil, err
	}
	r, err := a.cfg.Triggers.Fire(ctx, in.ID, b.TriggerID, b.Value, b.Reason)
	if err != nil {
		return nil, err
	}
	out := &firedOutput{Body: FiredBody{InBreach: r.InBreach}}
	if r.Firing != nil {
		f := firingBody(r.Firing)
		out.Body.Fired, out.Body.Firing = r.Firing.Open(), &f
	}
	return out, nil
}

func (a *API) reviveWorker(ctx context.Context, in *FleetPath) (*fleetOutput, error) {
	var b ReasonBody
	if err := in.maybeInto(&b); err != nil {
		return nil, err
	}
	w, err := a.cfg.Fleet.Revive(ctx, in.ID, b.Reason)
	return a.answerWorker(ctx, w, err)
}
