package watchman

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"time"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trigger"
)

// write judges again, over what is stored in this moment, and writes down what
// follows: another manager may have looked too, and somebody may have changed a
// trigger or ended a worker. It returns what is to be done.
func (w *Watchman) write(ctx context.Context, list []judgement) (fired []trigger.Firing, err error) {
	var noted []trigger.Firing
	err = w.Store.Update(ctx, func(tx store.Tx) error {
		noted = nil
		for _, j := range list {
			t, err := tx.Triggers().Get(ctx, j.trigger)
			if fault.Is(err, fault.NotFound) {
				continue
			}
			if err != nil {
				return err
			}
			x, err := tx.Fleet().Get(ctx, j.worker)
			if fault.Is(err, fault.NotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if x.State != manifest.Running || x.Still() || !t.Watches(x.Terms.Contract) {
				continue
			}
			f, _, err := w.judged(ctx, tx, &t, &x, j.value, "")
			if err != nil {
				return err
			}
			if f != nil {
				noted = append(noted, *f)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range noted {
		w.told(ctx, &noted[i])
		if noted[i].Open() {
			fired = append(fired, noted[i])
		}
	}
	return fired, nil
}

// judged judges a value in a transaction and writes down what follows. f is nil
// where nothing fired, nor was kept from it by the cooldown; in says whether the
// worker is in breach.
func (w *Watchman) judged(ctx context.Context, tx store.Tx, t *trigger.Trigger, x *manifest.Worker, v trigger.Value, reason string) (f *trigger.Firing, in bool, err error) {
	stored, err := tx.Triggers().Breaches(ctx, x.ID())
	if err != nil {
		return nil, false, err
	}
	all := map[pair]trigger.Breach{}
	for _, b := range stored {
		all[pair{b.Trigger, b.Worker}] = b
	}
	last, err := tx.Firings().Last(ctx, x.ID())
	if err != nil {
		return nil, false, err
	}
	now := w.now()
	before := breachOf(all, pair{t.ID, x.ID()}, x)
	b, step := t.Judge(before, v, last, now)
	b.Worker = x.ID()
	switch step {
	case trigger.Hold:
		return nil, before != nil, nil
	case trigger.Clear:
		return nil, false, tx.Triggers().DropBreaches(ctx, t.ID, x.ID())
	case trigger.Begin:
		return nil, true, tx.Triggers().PutBreach(ctx, &b)
	case trigger.Fire, trigger.Block:
	}
	if err := tx.Triggers().PutBreach(ctx, &b); err != nil {
		return nil, true, err
	}
	f = newFiring(ctx, t, x, v.Is, reason, now)
	f.Lasted = now.Sub(b.Since)
	if step == trigger.Block {
		f.Outcome, f.EndedAt = trigger.CooldownBlocked, now
	}
	return f, true, w.add(ctx, tx, f)
}

func newFiring(ctx context.Context, t *trigger.Trigger, x *manifest.Worker, value float64, reason string, now time.Time) *trigger.Firing {
	return &trigger.Firing{
		ID: job.NewID(), Trigger: t.ID, Kind: t.Kind, Label: t.Label, Severity: t.Severity, Worker: x.ID(), Owner: x.Terms.Owner,
		Value: value, Threshold: t.Threshold, Plan: t.Plan, By: policy.ActorOf(ctx), Reason: trigger.Clip(reason), At: now,
	}
}

// add writes a firing down, with its record and its event, in one transaction.
func (w *Watchman) add(ctx context.Context, tx store.Tx, f *trigger.Firing) error {
	if err := tx.Firings().Add(ctx, f); err != nil {
		return err
	}
	if _, err := tx.Firings().Forget(ctx, time.Time{}, MaxFirings, batch); err != nil {
		return err
	}
	if err := w.tell(ctx, tx, f); err != nil {
		return err
	}
	action := "trigger_fired"
	if !f.Open() {
		action = "trigger_" + string(f.Outcome)
	}
	return w.note(ctx, tx, f, action, f.At)
}

// note writes down what happened with a firing.
func (w *Watchman) note(ctx context.Context, tx store.Tx, f *trigger.Firing, action string, at time.Time) error {
	severity := audit.Warning
	if f.Severity == manifest.High || f.Severity == manifest.Critical {
		severity = audit.Critical
	}
	outcome := audit.Done
	if f.Outcome == trigger.Failed {
		outcome = audit.Failed
	}
	message := f.Because()
	if f.Detail != "" {
		message += "; " + f.Detail
	}
	err := tx.Audit().Append(ctx, &audit.Record{
		At: at, Category: audit.KillSwitch, Severity: severity, Action: action, Message: message, Source: "trigger", Actor: f.By, Target: f.Worker,
		Outcome: outcome, RequestID: audit.RequestOf(ctx), Metadata: map[string]string{
			"firing": f.ID, "trigger": f.Trigger, "kind": string(f.Kind), "label": f.Label, "strategy": string(f.Plan.Strategy),
			"value": number(f.Value), "threshold": number(f.Threshold), "escalated": strconv.FormatBool(f.Escalated), "pre_kill": f.PreKill,
		},
	})
	if err != nil {
		return err
	}
	data, _ := json.Marshal(map[string]any{ // of words and numbers
		"firing": f.ID, "trigger": f.Trigger, "kind": f.Kind, "strategy": f.Plan.Strategy, "outcome": f.Outcome, "reason": f.Because(),
	})
	return tx.Events().Append(ctx, &event.Event{Type: event.FleetFired, Version: 1, Entity: "fleet_worker", EntityID: f.Worker, Owner: f.Owner, Actor: f.By, At: at, Data: data})
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// told tells of a firing that was just written down.
func (w *Watchman) told(ctx context.Context, f *trigger.Firing) {
	event := "trigger_fired"
	if !f.Open() {
		event = "trigger_" + string(f.Outcome)
		w.Observe(f.Kind, f.Outcome)
	}
	w.Logger.LogAttrs(ctx, slog.LevelWarn, event, slog.String("worker_id", f.Worker), slog.String("firing", f.ID), slog.String("kind", string(f.Kind)),
		slog.String("strategy", string(f.Plan.Strategy)), slog.String("reason", f.Because()), slog.String("detail", f.Detail))
	poke(w.news)
}

// Report is what came of reporting a value.
type Report struct {
	Firing   *trigger.Firing // nil is that nothing fired
	InBreach bool
}

// Fire fires a trigger of the kind manual at a worker, or reports a value for one
// of the kind custom, which fires when that has been at its threshold for long
// enough. What follows begins at once, and is not waited for.
func (w *Watchman) Fire(ctx context.Context, worker, id string, value *float64, reason string) (r Report, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return r, err
	}
	err = w.Store.Update(ctx, func(tx store.Tx) error {
		r = Report{}
		missing := fault.New(fault.NotFound, "The fleet has no worker %.40q.", worker)
		if !manifest.ValidID(worker) {
			return missing
		}
		x, err := tx.Fleet().Get(ctx, worker)
		if fault.Is(err, fault.NotFound) || err == nil && !c.SeesAll() && c.ID != x.Terms.Owner {
			return missing
		}
		if err != nil {
			return err
		}
		t, err := tx.Triggers().Get(ctx, id)
		if fault.Is(err, fault.NotFound) {
			return fault.Field("trigger_id", "there is no trigger %.40q", id).WithCode("unknown_trigger")
		}
		if err == nil {
			err = mayFire(&t, &x, value)
		}
		if err != nil {
			return err
		}
		if t.Kind == trigger.Custom && x.State == manifest.Running {
			r.Firing, r.InBreach, err = w.judged(ctx, tx, &t, &x, trigger.Value{Is: *value, Known: true}, reason)
			return err
		}
		r.Firing, r.InBreach, err = w.byHand(ctx, tx, &t, &x, value, reason)
		return err
	})
	if err != nil {
		return Report{}, err
	}
	if r.Firing != nil {
		w.told(ctx, r.Firing)
		w.soon()
	}
	return r, nil
}

func mayFire(t *trigger.Trigger, x *manifest.Worker, value *float64) error {
	switch {
	case !t.Kind.Reported():
		return fault.Field("trigger_id", "the trigger is of the kind %s and fires by itself", t.Kind).WithCode("fires_by_itself")
	case !t.Enabled:
		return fault.New(fault.Conflict, "The trigger %s is disabled.", t.ID).WithCode("trigger_disabled")
	case !t.Watches(x.Terms.Contract):
		return fault.Field("trigger_id", "the trigger is for workers under the contract %s", t.Contract)
	case t.Kind == trigger.Custom && value == nil:
		return fault.Field("value", "is missing; a trigger of the kind custom is about a value")
	case t.Kind == trigger.Manual && value != nil:
		return fault.Field("value", "does not go with a trigger of the kind manual")
	}
	return nil
}

// byHand fires at a worker whatever it does; only its cooldown, and its death,
// are before that.
func (w *Watchman) byHand(ctx context.Context, tx store.Tx, t *trigger.Trigger, x *manifest.Worker, value *float64, reason string) (*trigger.Firing, bool, error) {
	now := w.now()
	v := 0.0
	if value != nil {
		v = *value
	}
	f := newFiring(ctx, t, x, v, reason, now)
	last, err := tx.Firings().Last(ctx, x.ID())
	if err != nil {
		return nil, false, err
	}
	switch {
	case x.State == manifest.Ended:
		f.Outcome, f.EndedAt = trigger.AlreadyDead, now
	case !last.IsZero() && !last.After(now) && now.Sub(last) < t.Plan.Cooldown:
		f.Outcome, f.EndedAt = trigger.CooldownBlocked, now
	}
	return f, f.Open(), w.add(ctx, tx, f)
}
