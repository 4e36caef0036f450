package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/killswitch"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/queue"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

const (
	// persistTime bounds how long a switch waits to be written down before the
	// workers are told all the same.
	persistTime = 3 * time.Second
	// pullTime bounds how long a worker may take.
	pullTime = 35 * time.Second
	// switchesEvery is how often what could not be written down is tried again.
	switchesEvery = time.Second
)

// switches is what this manager knows of the kill switch. What is asked of it
// asks no database.
type switches struct {
	mu      sync.Mutex
	known   killswitch.State
	pending []killswitch.Switch // that hold and are not written down yet
}

// state is all that holds.
func (s *switches) state() killswitch.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := killswitch.State{Seq: s.known.Seq, Engaged: slices.Clone(s.known.Engaged)}
	for i := range s.pending {
		if !slices.ContainsFunc(all.Engaged, func(x killswitch.Switch) bool { return x.ID == s.pending[i].ID }) {
			all.Engaged = append(all.Engaged, s.pending[i])
		}
	}
	return all
}

// refuse refuses new work for a subject that is stopped.
func (s *switches) refuse(x sandbox.Subject) error { return s.state().Refuse(x) }

// halt is what the switch does to the jobs of a project.
func (s *switches) halt(project int64) queue.Halt {
	one := s.state().Over(sandbox.Subject{Project: project})
	if one == nil {
		return queue.Halt{}
	}
	return queue.Halt{Stopped: true, Killed: one.Level == killswitch.Kill, Reason: one.Because()}
}

// learn takes what was read; changed says that it is another than before.
func (s *switches) learn(state killswitch.State) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = state.Seq != s.known.Seq
	s.known = state
	s.pending = slices.DeleteFunc(s.pending, func(p killswitch.Switch) bool {
		return slices.ContainsFunc(state.Engaged, func(x killswitch.Switch) bool { return x.ID == p.ID })
	})
	return changed
}

func (s *switches) put(one killswitch.Switch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, one)
}

func (s *switches) drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = slices.DeleteFunc(s.pending, func(p killswitch.Switch) bool { return p.ID == id })
}

func (s *switches) unwritten() []killswitch.Switch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.pending)
}

// readSwitches reads what is engaged.
func (m *Manager) readSwitches(ctx context.Context) error {
	var state killswitch.State
	err := m.Store.View(ctx, func(tx store.Tx) (err error) {
		state, err = tx.Switches().State(ctx)
		return err
	})
	if err == nil {
		m.switches.learn(state)
	}
	return err
}

// Switches returns what is engaged, and the last ones that ever were.
func (m *Manager) Switches(ctx context.Context) (killswitch.State, []store.SwitchRecord, error) {
	const last = 50
	if _, err := policy.Asking(ctx); err != nil {
		return killswitch.State{}, nil, err
	}
	var history []store.SwitchRecord
	err := m.Store.View(ctx, func(tx store.Tx) (err error) {
		history, err = tx.Switches().List(ctx, last)
		return err
	})
	return m.switches.state(), history, err
}

// EngageSwitch stops what a switch covers. It holds from the first line on; then
// it is written down, then every worker is told, all at once, and then what no
// worker answers for is ended. That it could not be written down stops nothing of
// it: the report says so, and it is tried again for as long as this manager lives.
func (m *Manager) EngageSwitch(ctx context.Context, one killswitch.Switch) (killswitch.Report, error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return killswitch.Report{}, err
	}
	one.ID, one.By, one.At = job.NewID(), c.ID, m.Now().UTC().Truncate(time.Microsecond)
	one.Director = c.Commands()
	if err := one.Check(); err != nil {
		return killswitch.Report{}, err
	}
	if len(m.switches.state().Engaged) >= killswitch.MaxEngaged {
		return killswitch.Report{}, fault.New(fault.Exhausted, "%d kill switches are engaged, which is the most; release some, or engage one for all.", killswitch.MaxEngaged)
	}
	// Whoever asked may hang up: what was begun is brought to its end.
	ctx = context.WithoutCancel(ctx)
	if err := m.findMembers(ctx, &one); err != nil {
		return killswitch.Report{}, err
	}
	m.switches.put(one)
	report := killswitch.Report{Switch: one}
	if err := m.persist(ctx, one); err != nil {
		m.Logger.Error("the kill switch is engaged, and could not be written down; trying again", "switch", one.ID, "error", err)
		report.Unpersisted = err.Error()
	}
	m.Logger.Warn("the kill switch is engaged", "switch", one.ID, "level", one.Level, "scope", one.Scope, "by", one.By, "reason", one.Reason)
	report.Workers = m.pull(ctx)
	if one.Level == killswitch.Kill {
		m.killRest(ctx, report.Workers)
	}
	return report, nil
}

// persist writes a switch down, in a transaction of its own with its event.
func (m *Manager) persist(ctx context.Context, one killswitch.Switch) error {
	bounded, cancel := context.WithTimeoutCause(ctx, persistTime, errSlowStore)
	defer cancel()
	err := m.Store.Update(bounded, func(tx store.Tx) error {
		added, err := tx.Switches().Engage(bounded, &one)
		if err != nil || !added {
			return err
		}
		return m.noteSwitch(bounded, tx, event.SwitchEngaged, &one, one.By, one.Reason)
	})
	if err == nil {
		err = m.readSwitches(bounded)
	}
	return err
}

var errSlowStore = fault.New(fault.Unavailable, "the database did not answer in time")

// noteSwitch records what was done with a switch.
func (m *Manager) noteSwitch(ctx context.Context, tx store.Tx, t event.Type, one *killswitch.Switch, actor, reason string) error {
	data, err := json.Marshal(map[string]any{
		"level": one.Level, "scope": one.Scope, "project_id": one.Project, "label": one.Label, "root": one.Root, "worker": one.Worker, "reason": reason,
	})
	if err != nil {
		return fmt.Errorf("encode the kill switch: %w", err)
	}
	if err := tx.Events().Append(ctx, &event.Event{Type: t, Version: 1, Entity: "killswitch", EntityID: one.ID, Actor: actor, At: m.Now(), Data: data}); err != nil {
		return err
	}
	action := "kill_switch_engaged"
	if t == event.SwitchReleased {
		action = "kill_switch_released"
	}
	return tx.Audit().Append(ctx, &audit.Record{
		At: m.Now(), Category: audit.KillSwitch, Severity: audit.Critical, Action: action, Message: reason, Source: "kill switch",
		Actor: actor, Target: one.ID, After: data,
	})
}

// keepSwitches writes down what could not be, until ctx ends.
func (m *Manager) keepSwitches(ctx context.Context) {
	tick := time.NewTicker(switchesEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, one := range m.switches.unwritten() {
			if err := m.persist(ctx, one); err == nil {
				m.Logger.Info("the kill switch is written down now", "switch", one.ID)
			}
		}
		if !m.Alone {
			if err := m.followSwitches(ctx); err != nil && ctx.Err() == nil {
				m.Logger.Warn("could not read the kill switch; what held goes on holding", "error", err)
			}
		}
	}
}

// followSwitches comes to what another manager did.
func (m *Manager) followSwitches(ctx context.Context) error {
	before := m.switches.state().Seq
	if err := m.readSwitches(ctx); err != nil || m.switches.state().Seq == before {
		return err
	}
	m.tasks.Go(func() { m.pull(context.WithoutCancel(ctx)) })
	return nil
}

// pull tells every worker whose stream is open here what holds, all at once.
func (m *Manager) pull(ctx context.Context) []killswitch.WorkerReport {
	state, began := m.switches.state(), time.Now()
	names := m.sessions.names()
	reports := make([]killswitch.WorkerReport, len(names))
	var group sync.WaitGroup
	for i, name := range names {
		reports[i].Worker = name
		stopper, ok := m.sessions.receiver(name).(dispatch.Stopper)
		if !ok {
			reports[i].Error = "its command stream is not open here; it learns it with its next word"
			continue
		}
		group.Go(func() {
			bounded, cancel := context.WithTimeoutCause(ctx, pullTime, errSlowWorker)
			defer cancel()
			done, err := stopper.Switch(bounded, state)
			reports[i].Done, reports[i].Took = done, time.Since(began)
			if err != nil {
				reports[i].Error = err.Error()
				m.Logger.Error("a worker could not be told what the kill switch says; it learns it with its next word", "worker", name, "error", err)
			}
		})
	}
	group.Wait()
	m.idle.Wake()
	m.work.Wake()
	m.Wake()
	return reports
}

var errSlowWorker = fault.New(fault.Unavailable, "the worker did not answer in time")

// killRest ends the jobs that no worker answers for: those of workers that are
// away, and of those that speak for themselves.
func (m *Manager) killRest(ctx context.Context, told []killswitch.WorkerReport) {
	answers := map[string]bool{}
	for i := range told {
		answers[told[i].Worker] = told[i].Error == ""
	}
	n, err := m.Queue.Kill(ctx, func(worker string) bool { return answers[worker] })
	if err != nil {
		m.Logger.Error("could not end the jobs that the kill switch killed; their leases run out", "error", err)
	}
	if n > 0 {
		m.Logger.Warn("ended jobs of workers that are away", "jobs", n)
	}
}

// names are the workers that have a session here.
func (ss *sessions) names() []string {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	names := make([]string, 0, len(ss.byWorker))
	for name := range ss.byWorker {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ReleaseSwitch lets go on what switches of a level stop: the one that is named,
// or all of that level. It is written down before anybody is told.
func (m *Manager) ReleaseSwitch(ctx context.Context, level killswitch.Level, id, reason string) (killswitch.Report, error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return killswitch.Report{}, err
	}
	asked := killswitch.Switch{Level: level, Scope: killswitch.All, Reason: reason, By: c.ID, At: m.Now().UTC()}
	if err := asked.Check(); err != nil {
		return killswitch.Report{}, err
	}
	var release []killswitch.Switch
	for _, one := range m.switches.state().Engaged {
		if one.Level == level && (id == "" || one.ID == id) {
			release = append(release, one)
		}
	}
	if len(release) == 0 {
		return killswitch.Report{}, fault.New(fault.Conflict, "No such kill switch of level %s is engaged.", level).WithCode("not_engaged")
	}
	if err := demandRank(c, release); err != nil {
		return killswitch.Report{}, err
	}
	err = m.Store.Update(ctx, func(tx store.Tx) error {
		if level == killswitch.Freeze {
			if err := m.Fleet.SpareStopped(ctx, tx); err != nil {
				return err
			}
		}
		for i := range release {
			// One that was never written down is, so that nobody engages it again.
			if _, err := tx.Switches().Engage(ctx, &release[i]); err != nil {
				return err
			}
			released, err := tx.Switches().Release(ctx, release[i].ID, c.ID, reason, asked.At)
			if err != nil {
				return err
			}
			if !released { // another was sooner, and has said so
				continue
			}
			if err := m.noteSwitch(ctx, tx, event.SwitchReleased, &release[i], c.ID, reason); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return killswitch.Report{}, err
	}
	for i := range release {
		m.switches.drop(release[i].ID)
	}
	ctx = context.WithoutCancel(ctx)
	if err := m.readSwitches(ctx); err != nil {
		return killswitch.Report{}, err
	}
	m.Logger.Warn("the kill switch is released", "level", level, "switches", len(release), "by", c.ID, "reason", reason)
	return killswitch.Report{Switch: release[0], Workers: m.pull(ctx)}, nil
}

// demandRank refuses a release to one of a lower rank than who engaged it.
func demandRank(c policy.Caller, release []killswitch.Switch) error {
	for i := range release {
		if one := &release[i]; one.NeedsDirector() && !c.May(policy.Rearm) {
			return fault.New(fault.Denied, "The kill switch %s was engaged by %s, and takes a director to release. Name another by its id.", one.ID, one.By).WithCode("director_needed")
		}
	}
	return nil
}

// tripped engages what was tripped at a worker's machine, once.
func (m *Manager) tripped(ctx context.Context, worker string, all []killswitch.Switch) error {
	if len(all) == 0 {
		return nil
	}
	news := false
	err := m.Store.Update(ctx, func(tx store.Tx) error {
		news = false
		for i := range all {
			one := all[i]
			added, err := tx.Switches().Engage(ctx, &one)
			if err != nil {
				return err
			}
			if !added {
				continue
			}
			news = true
			if err := m.noteSwitch(ctx, tx, event.SwitchEngaged, &one, worker, one.Reason); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = m.readSwitches(ctx)
	}
	if err != nil || !news {
		return err
	}
	m.Logger.Warn("the kill switch was tripped at a worker, and is engaged for all", "worker", worker)
	// Not in this call: the worker that makes it is told too.
	m.tasks.Go(func() {
		ctx := context.WithoutCancel(ctx)
		m.killRest(ctx, m.pull(ctx))
	})
	return nil
}
