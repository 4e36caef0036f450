package keeper

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// StartExec starts a command in a sandbox and returns as soon as it was
// started. The same key with the same request answers the exec of the first
// time; replayed says so.
func (k *Keeper) StartExec(ctx context.Context, c live.Command, asked run.Asked) (e live.Exec, replayed bool, err error) {
	e, host, err := k.order(ctx, &c)
	if err != nil {
		return e, false, err
	}
	return k.start(ctx, e, c, host, asked)
}

// order makes the exec of a command that is asked for.
func (k *Keeper) order(ctx context.Context, c *live.Command) (e live.Exec, host hosting, err error) {
	if err := c.Check(k.Terms); err != nil {
		return e, nil, err
	}
	s, host, err := k.awake(ctx, c.Sandbox)
	if err != nil {
		return e, nil, err
	}
	c.ID = job.NewID()
	e = live.Exec{
		ID: c.ID, Sandbox: s.ID, Owner: s.Owner, Project: s.Spec.Project(), Command: c.Command, Dir: c.Dir, User: c.User, TTY: c.TTY, Timeout: c.Timeout,
		State: live.Running, CreatedAt: k.now(),
	}
	e.StartedAt = e.CreatedAt
	return e, host, nil
}

// start starts an exec while it is written down.
func (k *Keeper) start(ctx context.Context, e live.Exec, c live.Command, host hosting, asked run.Asked) (_ live.Exec, replayed bool, err error) {
	who, err := policy.Asking(ctx)
	if err != nil {
		return e, false, err
	}
	asked.Key = who.ReplyKey(asked.Key)
	var earlier string
	end := k.begin(e.ID)
	defer end()
	var started bool
	var failed error
	err = k.beside(ctx, host, func() { started, failed = true, host.StartExec(ctx, c) }, func(tx store.Tx, goAhead func()) error {
		earlier = ""
		if asked.Key != "" {
			if earlier, err = keptExec(ctx, tx, who.ID, asked); err != nil || earlier != "" {
				return err
			}
			body, _ := json.Marshal(kept{ExecID: e.ID})
			if err := tx.Replies().Put(ctx, who.ID, asked.Key, store.Reply{Request: asked.Digest, Body: body, At: k.now()}); err != nil {
				return err
			}
		}
		if err := tx.Execs().Add(ctx, &e, nil); err != nil {
			return err
		}
		err := tx.Events().Append(ctx, begins(&e, who.ID))
		if err == nil {
			goAhead()
		}
		return err
	})
	if err != nil {
		if started {
			k.killUnstored(context.WithoutCancel(ctx), &e, host)
		}
		return e, false, err
	}
	if earlier != "" {
		e, err = k.Exec(ctx, earlier)
		return e, true, err
	}
	if failed != nil {
		k.notStarted(context.WithoutCancel(ctx), &e, host, failed)
	} else {
		k.recent.add(e)
	}
	return e, false, failed
}

// beside stores what fn writes and does do at the same time: the disk and the
// worker need not wait for each other. do begins when fn calls goAhead, which it
// does last, so that what ends in do is stored after fn; beside waits for both.
// What a second stream is told comes after: the manager that is told of its end
// knows only what is stored.
// What was done and is not stored is for the caller to take back, and for Meet
// after a crash.
func (k *Keeper) beside(ctx context.Context, host hosting, do func(), fn func(tx store.Tx, goAhead func()) error) error {
	var once sync.Once
	var doing sync.WaitGroup
	goAhead := func() { once.Do(func() { doing.Go(do) }) } // fn may run again
	if !isSecond(host) {
		err := k.Store.Update(ctx, func(tx store.Tx) error { return fn(tx, goAhead) })
		doing.Wait()
		return err
	}
	var wanted bool
	err := k.Store.Update(ctx, func(tx store.Tx) error {
		wanted = false
		return fn(tx, func() { wanted = true })
	})
	if err == nil && wanted {
		do()
	}
	return err
}

// killUnstored kills an exec that may have been started and that nobody has
// written down.
func (k *Keeper) killUnstored(ctx context.Context, e *live.Exec, host hosting) {
	bounded, cancel := context.WithTimeoutCause(ctx, cleanupTime, errSlow)
	defer cancel()
	err := host.SignalExec(bounded, live.Signal{Sandbox: e.Sandbox, Exec: e.ID, Signal: 9, Tree: true, Kill: "its start was not recorded"})
	if err != nil && fault.CodeOf(err) != dispatch.CodeNoExec {
		k.Logger.Warn("could not kill a command whose start was not recorded; its worker will when it registers", "exec", e.ID, "error", err)
	}
}

// notStarted ends an exec whose start failed. Where the worker could not be
// asked it may have been started all the same, so it is killed; one that cannot
// even be told knows by its registration.
func (k *Keeper) notStarted(ctx context.Context, e *live.Exec, host hosting, why error) {
	bounded, cancel := context.WithTimeoutCause(ctx, cleanupTime, errSlow)
	defer cancel()
	if fault.Is(why, fault.Unavailable) {
		_ = host.SignalExec(bounded, live.Signal{Sandbox: e.Sandbox, Exec: e.ID, Signal: 9, Tree: true, Kill: "its start was given up"})
	}
	if err := k.endLost(ctx, e.ID, "it was not started: "+why.Error()); err != nil {
		k.Logger.Error("could not record that an exec was not started", "exec", e.ID, "error", err)
	}
}

// endLost ends an exec of which nothing more will be heard, unless its end was
// taken meanwhile.
func (k *Keeper) endLost(ctx context.Context, id, cause string) error {
	none := emptyOutput()
	err := k.records.Update(ctx, func(tx store.Tx) error {
		e, err := tx.Execs().Get(ctx, id)
		if fault.Is(err, fault.NotFound) || err == nil && e.State == live.Done {
			return nil
		}
		if err != nil {
			return err
		}
		return k.endExec(ctx, tx, &e, live.ExecResult{Verdict: sandbox.Lost, Cause: cause, ExitCode: -1, Stdout: none, Stderr: none, Started: e.StartedAt, Ended: k.now()}, nil)
	})
	k.ended.Wake()
	return err
}

// begins is the event of a start.
func begins(e *live.Exec, actor string) *event.Event {
	return ran(e, event.ExecStarted, actor, e.CreatedAt, map[string]any{"sandbox": e.Sandbox, "command": briefly(e.Command)})
}

func emptyOutput() run.Output { return run.Output{SHA256: blob.Empty} }

// kept is what stands under an idempotency key.
type kept struct {
	ExecID string `json:"exec_id"`
}

func keptExec(ctx context.Context, tx store.Tx, owner string, asked run.Asked) (string, error) {
	old, err := tx.Replies().Get(ctx, owner, asked.Key)
	if fault.Is(err, fault.NotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look up idempotency key: %w", err)
	}
	var x kept
	if err := json.Unmarshal(old.Body, &x); err != nil || old.Request != asked.Digest || x.ExecID == "" {
		return "", fault.New(fault.Conflict, "the idempotency key was used before with another request; use a new key for a new request").
			WithCode("idempotency_mismatch")
	}
	return x.ExecID, nil
}

// endExec writes the end of an exec down.
func (k *Keeper) endExec(ctx context.Context, tx store.Tx, e *live.Exec, res live.ExecResult, inline map[string][]byte) error {
	k.close(e, res)
	if err := tx.Execs().Put(ctx, e, small(e, inline)); err != nil {
		return err
	}
	return tx.Events().Append(ctx, ends(e, policy.ActorOf(ctx)))
}

// close says of an exec how it ended.
func (k *Keeper) close(e *live.Exec, res live.ExecResult) {
	e.State, e.EndedAt, e.Result = live.Done, k.now(), &res
	if !res.Started.IsZero() {
		e.StartedAt = res.Started
	}
}

// small are the streams of an ended exec that ride with its end.
func small(e *live.Exec, inline map[string][]byte) map[string][]byte {
	all := map[string][]byte{}
	for _, digest := range []string{e.Result.Stdout.SHA256, e.Result.Stderr.SHA256} {
		if data, ok := inline[digest]; ok && digest != blob.Empty {
			all[digest] = data
		}
	}
	return all
}

// ends is the event of an end.
func ends(e *live.Exec, actor string) *event.Event {
	return ran(e, event.ExecEnded, actor, e.EndedAt, map[string]any{
		"sandbox": e.Sandbox, "verdict": e.Result.Verdict, "cause": clip(e.Result.Cause), "exit_code": e.Result.ExitCode,
		"stdout_bytes": e.Result.Stdout.Kept, "stderr_bytes": e.Result.Stderr.Kept,
	})
}

// Exec returns an exec.
func (k *Keeper) Exec(ctx context.Context, id string) (e live.Exec, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return e, err
	}
	err = k.Store.View(ctx, func(tx store.Tx) (err error) {
		if e, err = tx.Execs().Get(ctx, id); err != nil {
			return err
		}
		return demandProject(ctx, tx, c, e.Sandbox)
	})
	if fault.Is(err, fault.NotFound) || err == nil && !c.Sees(e.Owner, c.Project()) {
		return live.Exec{}, fault.New(fault.NotFound, "No exec has the id %q.", id)
	}
	return e, err
}

// Execs lists execs, newest first.
func (k *Keeper) Execs(ctx context.Context, f store.ExecFilter) (list []live.Exec, err error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return nil, err
	}
	f.Owner = cmp.Or(c.OnlyOwner(), f.Owner)
	err = k.Store.View(ctx, func(tx store.Tx) (err error) {
		if err := demandProject(ctx, tx, c, f.Sandbox); err != nil {
			return err
		}
		list, err = tx.Execs().List(ctx, f)
		return err
	})
	return list, err
}

// WaitExec returns an exec when it has ended, or as it stands when ctx does,
// with the cause.
func (k *Keeper) WaitExec(ctx context.Context, id string) (live.Exec, error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return live.Exec{}, err
	}
	for first := true; ; first = false {
		moved := k.ended.Wait() // before the look
		e, ok := k.recent.get(id)
		if !ok || !c.Sees(e.Owner, 0) || !first && e.State != live.Done { // whose project it is stands with its sandbox
			e, err = k.Exec(context.WithoutCancel(ctx), id)
		}
		if err != nil || e.State == live.Done {
			return e, err
		}
		k.touch(e.Sandbox, true)
		select {
		case <-moved:
		case <-time.After(rhythm): // another manager may have been told
		case <-ctx.Done():
			return e, context.Cause(ctx)
		}
	}
}

// reach returns an exec that runs, and its worker.
func (k *Keeper) reach(ctx context.Context, id string) (live.Exec, hosting, error) {
	e, err := k.Exec(ctx, id)
	if err != nil {
		return e, nil, err
	}
	if e.State == live.Done {
		return e, nil, fault.New(fault.Conflict, "The exec %s has ended.", id).WithCode("exec_ended")
	}
	_, host, err := k.awake(ctx, e.Sandbox)
	return e, host, err
}

// FeedExec writes to the standard input of an exec at an offset; negative is
// where it stands.
func (k *Keeper) FeedExec(ctx context.Context, id string, offset int64, data []byte, last bool) error {
	e, host, err := k.reach(ctx, id)
	if err != nil {
		return err
	}
	for {
		n := min(len(data), dispatch.MaxInput)
		in := live.Input{Sandbox: e.Sandbox, Exec: e.Inside(), Offset: offset, Data: data[:n], Close: last && n == len(data)}
		if err := host.FeedExec(ctx, in); err != nil {
			return err
		}
		if data = data[n:]; len(data) == 0 {
			return nil
		}
		if offset >= 0 {
			offset += int64(n)
		}
	}
}

// ResizeExec sets the size of an exec's terminal.
func (k *Keeper) ResizeExec(ctx context.Context, id string, cols, rows uint16) error {
	e, host, err := k.reach(ctx, id)
	if err != nil {
		return err
	}
	return host.ResizeExec(ctx, live.Size{Sandbox: e.Sandbox, Exec: e.Inside(), Cols: cols, Rows: rows})
}

// SignalExec sends a signal to an exec, and to all of its descendants with tree.
func (k *Keeper) SignalExec(ctx context.Context, id string, signal int, tree bool) error {
	if signal < 1 || signal > 64 {
		return fault.Field("signal", "must be from 1 to 64")
	}
	e, host, err := k.reach(ctx, id)
	if err != nil {
		return err
	}
	if err := k.record(ctx, store.Act{Action: "exec.signal", Target: id, After: map[string]any{"sandbox": e.Sandbox, "signal": signal}}); err != nil {
		return err
	}
	return host.SignalExec(ctx, live.Signal{Sandbox: e.Sandbox, Exec: e.Inside(), Signal: signal, Tree: tree})
}

// KillExec ends an exec with all of its descendants and returns it ended.
func (k *Keeper) KillExec(ctx context.Context, id, by string) (live.Exec, error) {
	e, host, err := k.reach(ctx, id)
	if fault.CodeOf(err) == "exec_ended" {
		return e, nil
	}
	if err != nil {
		return e, err
	}
	if err := k.record(ctx, store.Act{Action: "exec.kill", Target: id, Reason: by, After: map[string]any{"sandbox": e.Sandbox}}); err != nil {
		return e, err
	}
	if err := host.SignalExec(ctx, live.Signal{Sandbox: e.Sandbox, Exec: e.Inside(), Signal: 9, Tree: true, Kill: by}); err != nil {
		return e, err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, cleanupTime, errSlow)
	defer cancel()
	return k.WaitExec(bounded, id)
}
