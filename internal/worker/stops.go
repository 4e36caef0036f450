package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/killswitch"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// The files of the kill switch in the worker's folder: what holds, so that a
// worker that is started again begins nothing before it has heard otherwise; and
// the one that pulls the switch of this machine when somebody puts it there.
const (
	stopsName = "stops.json"
	tripName  = "trip"
	maxTrip   = 16 << 10
)

// tripLook is how often the folder is looked at for the file that trips.
const tripLook = 500 * time.Millisecond

// stopTime bounds how long all that there is may take to come to a state.
const stopTime = 30 * time.Second

// stops is the worker's end of the kill switch: what the managers say, and what
// was tripped here while none could be asked.
type stops struct {
	run  *run
	turn chan struct{} // holds one token while a state is applied

	mu    sync.Mutex
	state killswitch.State
	local []killswitch.Switch // that no manager has taken yet
	cut   *killswitch.Switch  // while no manager can be reached; see contact
	short bool                // something could not be brought to what holds
	done  killswitch.Done     // what came of the state
}

var _ dispatch.Stopper = receiver{}

func newStops(r *run) *stops { return &stops{run: r, turn: make(chan struct{}, 1)} }

// Switch brings everything here to a state.
func (rc receiver) Switch(ctx context.Context, s killswitch.State) (killswitch.Done, error) {
	if err := s.Check(); err != nil {
		return killswitch.Done{}, err
	}
	rc.run.contact.hear()
	return rc.run.stops.come(ctx, s, nil, false)
}

// subjectOf says whose the sandbox of a job is.
func subjectOf(l *dispatch.Lease) sandbox.Subject {
	return sandbox.Subject{ID: l.JobID, Project: l.ProjectID}
}

// engaged reports whether everything here is stopped.
func (s *stops) engaged() bool {
	stop, _ := s.run.brake.Over()
	return stop.Kill || stop.Freeze
}

// holds is all that holds now.
//
// Preconditions: mu is held.
func (s *stops) holds() killswitch.State {
	all := killswitch.State{Seq: s.state.Seq}
	all.Engaged = append(append(all.Engaged, s.state.Engaged...), s.local...)
	if s.cut != nil {
		all.Engaged = append(all.Engaged, *s.cut)
	}
	return all
}

// untold are the switches that were tripped here. A registration also names what
// the worker holds to: a manager that could not write it down may be another now.
func (s *stops) untold(registering bool) []killswitch.Switch {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.local
	if registering {
		all = slices.Concat(s.state.Engaged, s.local)
	}
	return append([]killswitch.Switch(nil), all[:min(len(all), dispatch.MaxTripped)]...)
}

// heard takes what a manager said of the switch with an answer; it has taken what
// it was told.
func (s *stops) heard(ctx context.Context, state killswitch.State, told []killswitch.Switch, registered bool) {
	if err := state.Check(); err != nil {
		s.run.log.Error("what the manager says of the kill switch makes no sense; what holds here goes on holding", "error", err)
		return
	}
	s.run.contact.hear()
	if _, err := s.come(ctx, state, told, registered); err != nil && ctx.Err() == nil {
		s.run.log.Error("could not come to what the kill switch says; trying again", "error", err)
	}
}

// come comes to a state. In one session an older state changes nothing; one that
// a registration brought holds whatever its number: the database may be another.
func (s *stops) come(ctx context.Context, state killswitch.State, told []killswitch.Switch, registered bool) (killswitch.Done, error) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stopTime, errSlowStop)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return killswitch.Done{}, context.Cause(ctx)
	}
	s.mu.Lock()
	old := !registered && state.Seq < s.state.Seq
	same := state.Seq == s.state.Seq && len(state.Engaged) == len(s.state.Engaged) && len(told) == 0 && !s.short && s.cut == nil
	if same {
		done := s.done // it was heard with an answer before it was told
		s.mu.Unlock()
		return done, nil
	}
	if old {
		s.mu.Unlock()
		return killswitch.Done{}, nil
	}
	s.state, s.local, s.cut = state, without(s.local, told), nil
	all := s.holds()
	s.mu.Unlock()
	done, err := s.apply(ctx, all)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = done
	return done, err
}

var errSlowStop = fault.New(fault.Unavailable, "not everything came to what the kill switch says in time")

func without(all, some []killswitch.Switch) (rest []killswitch.Switch) {
	known := map[string]bool{}
	for i := range some {
		known[some[i].ID] = true
	}
	for i := range all {
		if !known[all[i].ID] {
			rest = append(rest, all[i])
		}
	}
	return rest
}

// apply brings everything here to what holds, and writes that down: first, so
// that a process that is killed over it finds it, and without waiting for the
// disk, since the machine's end is an end too.
//
// Preconditions: the caller holds the turn.
func (s *stops) apply(ctx context.Context, all killswitch.State) (killswitch.Done, error) {
	began := time.Now()
	written := s.write()
	braked, err := s.run.brake.Apply(ctx, all.Rule(), s.run.Drivers)
	done := killswitch.Done{Killed: braked.Killed, Frozen: braked.Frozen, Resumed: braked.Resumed, Failed: braked.Failed}
	if err != nil {
		done.Problem = line(err.Error())
	}
	s.mu.Lock()
	s.short = err != nil
	s.mu.Unlock()
	s.goOn(ctx)
	if written != nil {
		s.run.log.Error("could not write down what the kill switch says", "error", written)
	}
	s.run.log.Warn("the kill switch was pulled", "engaged", len(all.Engaged), "killed", done.Killed, "frozen", done.Frozen, "resumed", done.Resumed,
		"failed", done.Failed, "problem", done.Problem, "took", time.Since(began))
	s.run.pool.Look()
	return done, nil
}

// goOn meets the commands of sandboxes that stood still when this process met
// them, and may go on.
func (s *stops) goOn(ctx context.Context) {
	for _, k := range s.run.hosted.each() {
		stop := s.run.brake.Check(k.subject())
		k.mu.Lock()
		goes := k.halted && !stop.Kill && !stop.Freeze
		k.halted = k.halted && !goes
		k.mu.Unlock()
		if goes {
			k.attachDetached(ctx)
		}
	}
}

// stopsFile is what is written down.
type stopsFile struct {
	State killswitch.State    `json:"state"`
	Local []killswitch.Switch `json:"local,omitempty"`
}

func (s *stops) write() error {
	s.mu.Lock()
	body, err := json.Marshal(stopsFile{s.state, s.local})
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("encode what the kill switch says: %w", err)
	}
	path := filepath.Join(s.run.base.folder, stopsName)
	if err := os.WriteFile(path+".new", body, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// recall comes to what an earlier process was told, before anything else is
// done. What it cannot read it takes for a stop of everything.
func (s *stops) recall(ctx context.Context) {
	var kept stopsFile
	body, err := os.ReadFile(filepath.Join(s.run.base.folder, stopsName))
	if err == nil {
		if err = json.Unmarshal(body, &kept); err == nil {
			err = errors.Join(kept.State.Check(), killswitch.State{Engaged: kept.Local}.Check())
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		s.run.log.Error("what the kill switch said could not be read; nothing begins before a manager has said it again", "error", err)
		kept = stopsFile{State: killswitch.State{Engaged: []killswitch.Switch{s.unreadable()}}}
	}
	s.mu.Lock()
	s.state, s.local = kept.State, kept.Local
	all := s.holds()
	s.mu.Unlock()
	if len(all.Engaged) > 0 {
		bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stopTime, errSlowStop)
		defer cancel()
		if _, err := s.run.brake.Apply(bounded, all.Rule(), s.run.Drivers); err != nil {
			s.run.log.Error("could not come to what the kill switch said", "error", err)
		}
	}
	s.look(ctx)
}

// unreadable freezes: what cannot be read must not cost what lives.
func (s *stops) unreadable() killswitch.Switch {
	return killswitch.Switch{
		ID: uuid.NewString(), Level: killswitch.Freeze, Scope: killswitch.All, Worker: s.run.WorkerID, By: "worker " + s.run.WorkerID,
		Reason: "what it said was not readable when the worker was started", At: time.Now().UTC(),
	}
}

// watch pulls the switch when somebody at this machine does, until the run ends.
func (s *stops) watch() {
	tick := time.NewTicker(tripLook)
	defer tick.Stop()
	for {
		select {
		case <-s.run.Trip:
			s.trip(s.run.life, s.read())
		case <-tick.C:
			s.look(s.run.life)
		case <-s.run.life.Done():
			return
		}
	}
}

// look pulls the switch if the file is there.
func (s *stops) look(ctx context.Context) {
	if _, err := os.Lstat(filepath.Join(s.run.base.folder, tripName)); err == nil {
		s.trip(ctx, s.read())
	}
}

// read reads what the file says. Whatever it is, it stops everything.
func (s *stops) read() killswitch.Switch {
	one := killswitch.Switch{
		ID: uuid.NewString(), Level: killswitch.Kill, Scope: killswitch.All, Worker: s.run.WorkerID,
		Reason: "tripped at the machine", By: "machine", At: time.Now().UTC(),
	}
	body, err := os.ReadFile(filepath.Join(s.run.base.folder, tripName))
	var said struct {
		Level  killswitch.Level `json:"level"`
		Reason string           `json:"reason"`
		By     string           `json:"by"`
	}
	if err != nil || len(body) > maxTrip || json.Unmarshal(body, &said) != nil {
		return one
	}
	asked := one
	if asked.Level = said.Level; said.Level == "" {
		asked.Level = killswitch.Kill
	}
	if said.Reason != "" {
		asked.Reason = said.Reason
	}
	if said.By != "" {
		asked.By = said.By
	}
	if asked.Check() != nil {
		return one
	}
	return asked
}

// trip engages a switch here and now. The manager hears of it at the next
// occasion, and the file goes when all is done.
func (s *stops) trip(ctx context.Context, one killswitch.Switch) {
	bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stopTime, errSlowStop)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
	case <-bounded.Done():
		return
	}
	s.mu.Lock()
	if len(s.local) < dispatch.MaxTripped {
		s.local = append(s.local, one)
	}
	all := s.holds()
	s.mu.Unlock()
	_, err := s.apply(bounded, all)
	<-s.turn
	if err == nil {
		err = os.Remove(filepath.Join(s.run.base.folder, tripName))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.run.log.Error("the kill switch of this machine was not pulled to the end", "error", err)
	}
	wake(s.run.changed)
}
