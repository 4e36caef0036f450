package watchman

import (
	"context"
	"encoding/json"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/trigger"
)

// Triggers lists the triggers, oldest first.
func (w *Watchman) Triggers(ctx context.Context) (list []trigger.Trigger, err error) {
	if _, err := policy.Asking(ctx); err != nil {
		return nil, err
	}
	err = w.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Triggers().List(ctx)
		return err
	})
	return list, err
}

// Trigger returns one.
func (w *Watchman) Trigger(ctx context.Context, id string) (t trigger.Trigger, err error) {
	if _, err := policy.Asking(ctx); err != nil {
		return t, err
	}
	err = w.Store.View(ctx, func(tx store.Tx) (err error) {
		t, err = get(ctx, tx, id)
		return err
	})
	return t, err
}

func get(ctx context.Context, tx store.Tx, id string) (trigger.Trigger, error) {
	t, err := tx.Triggers().Get(ctx, id)
	if fault.Is(err, fault.NotFound) {
		err = fault.New(fault.NotFound, "There is no trigger %.40q.", id)
	}
	return t, err
}

// AddTrigger makes a trigger. One that could never fire is refused.
func (w *Watchman) AddTrigger(ctx context.Context, t trigger.Trigger) (trigger.Trigger, error) {
	if err := t.Check(); err != nil {
		return t, err
	}
	if err := w.demandHooks(&t); err != nil {
		return t, err
	}
	err := w.Store.Update(ctx, func(tx store.Tx) error { return w.addIn(ctx, tx, &t) })
	return t, err
}

func (w *Watchman) addIn(ctx context.Context, tx store.Tx, t *trigger.Trigger) error {
	all, err := tx.Triggers().List(ctx)
	if err != nil {
		return err
	}
	if len(all) >= trigger.MaxTriggers {
		return fault.New(fault.Exhausted, "There are %d triggers, which is the most.", trigger.MaxTriggers).WithCode("too_many_triggers")
	}
	t.ID, t.CreatedAt = job.NewID(), w.now()
	t.UpdatedAt = t.CreatedAt
	if err := tx.Triggers().Add(ctx, t); err != nil {
		return err
	}
	return w.noteRule(ctx, tx, "trigger_added", nil, t)
}

// ChangeTrigger changes a trigger. Those who are in breach of it begin anew.
func (w *Watchman) ChangeTrigger(ctx context.Context, id string, change func(t *trigger.Trigger) error) (t trigger.Trigger, err error) {
	err = w.Store.Update(ctx, func(tx store.Tx) (err error) {
		if t, err = get(ctx, tx, id); err != nil {
			return err
		}
		before := t
		if err := change(&t); err != nil {
			return err
		}
		t.UpdatedAt = w.now()
		if err := t.Check(); err != nil {
			return err
		}
		if err := w.demandHooks(&t); err != nil {
			return err
		}
		if err := tx.Triggers().Put(ctx, &t); err != nil {
			return err
		}
		if err := tx.Triggers().DropBreaches(ctx, id, ""); err != nil {
			return err
		}
		return w.noteRule(ctx, tx, "trigger_changed", &before, &t)
	})
	return t, err
}

// RemoveTrigger removes a trigger. What it has begun goes on.
func (w *Watchman) RemoveTrigger(ctx context.Context, id string) error {
	return w.Store.Update(ctx, func(tx store.Tx) error {
		t, err := get(ctx, tx, id)
		if err != nil {
			return err
		}
		return w.removeIn(ctx, tx, &t)
	})
}

func (w *Watchman) removeIn(ctx context.Context, tx store.Tx, t *trigger.Trigger) error {
	if err := tx.Triggers().Drop(ctx, t.ID); err != nil {
		return err
	}
	return w.noteRule(ctx, tx, "trigger_removed", t, nil)
}

// LeftOut is a trigger of a preset that would never fire.
type LeftOut struct {
	trigger.Trigger
	Why string
}

// ApplyPreset makes the triggers of a preset, in place of those that it made
// before, for all workers or for those under a contract. What cannot be watched
// yet is left out, and said.
func (w *Watchman) ApplyPreset(ctx context.Context, name, contract string) (made []trigger.Trigger, left []LeftOut, err error) {
	p, err := trigger.FindPreset(name)
	if err != nil {
		return nil, nil, err
	}
	for i := range p.Triggers {
		t := &p.Triggers[i]
		t.Contract = contract
		if err := t.Check(); fault.CodeOf(err) == trigger.CodeUnavailable {
			left = append(left, LeftOut{*t, err.Error()})
		} else if err != nil {
			return nil, nil, err
		}
	}
	err = w.Store.Update(ctx, func(tx store.Tx) error {
		made = nil
		all, err := tx.Triggers().List(ctx)
		if err != nil {
			return err
		}
		for i := range all {
			if t := &all[i]; t.Preset == name && t.Contract == contract {
				if err := w.removeIn(ctx, tx, t); err != nil {
					return err
				}
			}
		}
		for _, t := range p.Triggers {
			if t.Kind.Available() != nil {
				continue
			}
			if err := w.addIn(ctx, tx, &t); err != nil {
				return err
			}
			made = append(made, t)
		}
		return nil
	})
	return made, left, err
}

// noteRule writes down that a trigger was made, changed or removed.
func (w *Watchman) noteRule(ctx context.Context, tx store.Tx, action string, before, after *trigger.Trigger) error {
	one := after
	if one == nil {
		one = before
	}
	r := &audit.Record{
		At: w.now(), Category: audit.Config, Severity: audit.Warning, Action: action, Source: "trigger", Actor: policy.ActorOf(ctx), Target: one.ID,
		Message: one.Label, RequestID: audit.RequestOf(ctx),
	}
	r.Before, r.After = shown(before), shown(after)
	if err := tx.Audit().Append(ctx, r); err != nil {
		return err
	}
	data, _ := json.Marshal(map[string]any{"action": action, "kind": one.Kind, "label": one.Label})
	return tx.Events().Append(ctx, &event.Event{Type: event.FleetTrigger, Version: 1, Entity: "trigger", EntityID: one.ID, Actor: policy.ActorOf(ctx), At: r.At, Data: data})
}

// shown is a trigger for the audit, which has no secrets; nil is none.
func shown(t *trigger.Trigger) json.RawMessage {
	if t == nil {
		return nil
	}
	x := *t
	x.Plan.Hooks = x.Plan.Hooks.Shown()
	text, _ := json.Marshal(x) // plain data
	return text
}

// Firings lists what triggers did to workers that the caller sees, newest first.
func (w *Watchman) Firings(ctx context.Context, f store.FiringFilter) (list []trigger.Firing, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return nil, err
	}
	if !c.SeesAll() {
		f.Owner = c.ID
	}
	err = w.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Firings().List(ctx, f)
		return err
	})
	return list, err
}
