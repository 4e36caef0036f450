package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/aurea-dev/aurea/internal/killswitch"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// KillSwitch stops things, and lets them go on.
type KillSwitch interface {
	// Switches returns what is engaged, and the last ones that ever were.
	Switches(ctx context.Context) (killswitch.State, []store.SwitchRecord, error)
	EngageSwitch(ctx context.Context, s killswitch.Switch) (killswitch.Report, error)
	// ReleaseSwitch lets go on what switches of a level stop; "" is all of them.
	ReleaseSwitch(ctx context.Context, level killswitch.Level, id, reason string) (killswitch.Report, error)
}

// EngageBody says what is to be stopped, how, and why.
type EngageBody struct {
	Level     killswitch.Level `json:"level" enum:"freeze,kill" doc:"freeze can be taken back; kill ends what it covers."`
	Scope     killswitch.Scope `json:"scope,omitempty" enum:"all,project,label,subtree" doc:"How far it reaches; all where it is left out."`
	ProjectID int64            `json:"project_id,omitempty" doc:"With the scope project: its jobs, and sandboxes with the label project."`
	Label     string           `json:"label,omitempty" maxLength:"320" doc:"With the scope label: key=value."`
	Root      string           `json:"root,omitempty" maxLength:"320" doc:"With the scope subtree: a sandbox or a member of the fleet; all below it is meant too."`
	Reason    string           `json:"reason" maxLength:"1000" doc:"Why, for the record."`
}

// ReleaseBody says why something may go on.
type ReleaseBody struct {
	ID     string `json:"id,omitempty" maxLength:"100" doc:"One switch; all of the level where it is left out."`
	Reason string `json:"reason" maxLength:"1000" doc:"Why, for the record."`
}

// SwitchBody is a kill switch.
type SwitchBody struct {
	ID            string           `json:"id"`
	Level         killswitch.Level `json:"level" enum:"freeze,kill"`
	Scope         killswitch.Scope `json:"scope" enum:"all,project,label,subtree"`
	ProjectID     *int64           `json:"project_id"`
	Label         *string          `json:"label"`
	Root          *string          `json:"root"`
	Reason        string           `json:"reason"`
	By            string           `json:"by"`
	Director      bool             `json:"director" doc:"Whether it takes a director to release it."`
	WorkerID      *string          `json:"worker_id" doc:"Where it was tripped without a manager."`
	EngagedAt     time.Time        `json:"engaged_at"`
	ReleasedAt    *time.Time       `json:"released_at"`
	ReleasedBy    *string          `json:"released_by"`
	ReleaseReason *string          `json:"release_reason"`
}

func switchBody(s *killswitch.Switch) SwitchBody {
	b := SwitchBody{
		ID: s.ID, Level: s.Level, Scope: s.Scope, Label: orNull(s.Label), Root: orNull(s.Root), Reason: s.Reason, By: s.By,
		WorkerID: orNull(s.Worker), EngagedAt: s.At.UTC(), Director: s.NeedsDirector(),
	}
	if s.Project != 0 {
		b.ProjectID = &s.Project
	}
	return b
}

// SwitchesBody is how the kill switch stands.
type SwitchesBody struct {
	Engaged bool         `json:"engaged" doc:"Whether anything is stopped."`
	Now     []SwitchBody `json:"switches" nullable:"false" doc:"What is engaged, the oldest first."`
	History []SwitchBody `json:"history" nullable:"false" doc:"The last ones that were ever engaged, the newest first."`
}

// SwitchReportBody is what came of engaging or releasing a switch.
type SwitchReportBody struct {
	Switch      SwitchBody         `json:"switch"`
	Persisted   bool               `json:"persisted" doc:"Whether it is written down. One that is not holds all the same, and is tried again."`
	Problem     *string            `json:"problem" doc:"Why it is not written down."`
	Killed      int                `json:"killed" doc:"Sandboxes that were ended."`
	Frozen      int                `json:"frozen"`
	Resumed     int                `json:"resumed"`
	Failed      int                `json:"failed" doc:"Sandboxes that could not be brought to it."`
	Workers     []SwitchWorkerBody `json:"workers" nullable:"false"`
	Unreachable []string           `json:"unreachable" nullable:"false" doc:"Workers that did not answer. They learn it with their next word."`
}

// SwitchWorkerBody is what one worker did.
type SwitchWorkerBody struct {
	WorkerID string  `json:"worker_id"`
	Killed   int     `json:"killed"`
	Frozen   int     `json:"frozen"`
	Resumed  int     `json:"resumed"`
	Failed   int     `json:"failed"`
	Problem  *string `json:"problem"`
	TookMS   float64 `json:"took_ms"`
}

type switchesOutput struct{ Body SwitchesBody }

type switchReportOutput struct{ Body SwitchReportBody }

type switchInput struct{ Exchange }

func (a *API) registerKillSwitch() {
	const path, tag = "/kill-switch", "kill switch"
	register(a, route{
		method: http.MethodGet, path: path, action: policy.Read, id: "getKillSwitch", tag: tag, summary: "Say what is stopped, and what was",
	}, a.killSwitch)
	register(a, route{
		method: http.MethodPost, path: path, action: policy.Stop, id: "engageKillSwitch", tag: tag, summary: "Stop everything, or a part of it, at once",
		detail: "The switch holds before it is written down, and is written down before any worker is told. New work that it covers is refused with 503 and the code KILL_SWITCH until it is released, also after a restart of everything.",
		body:   EngageBody{}, example: EngageBody{Level: killswitch.Freeze, Scope: killswitch.All, Reason: "looking into it"},
	}, a.engageSwitch)
	register(a, route{
		method: http.MethodPost, path: path + "/rearm", action: policy.Rearm, id: "rearmKillSwitch", tag: tag, summary: "Let new work begin after a kill",
		detail: "A director's act. What was killed stays dead.", body: ReleaseBody{},
	}, func(ctx context.Context, in *switchInput) (*switchReportOutput, error) {
		return a.releaseSwitch(ctx, in, killswitch.Kill)
	})
	register(a, route{
		method: http.MethodPost, path: path + "/unfreeze", action: policy.Stop, id: "unfreeze", tag: tag, summary: "Let go on what was frozen", body: ReleaseBody{},
	}, func(ctx context.Context, in *switchInput) (*switchReportOutput, error) {
		return a.releaseSwitch(ctx, in, killswitch.Freeze)
	})
}

func (a *API) killSwitch(ctx context.Context, _ *switchInput) (*switchesOutput, error) {
	state, history, err := a.cfg.KillSwitch.Switches(ctx)
	if err != nil {
		return nil, err
	}
	b := SwitchesBody{Engaged: len(state.Engaged) > 0, Now: []SwitchBody{}, History: []SwitchBody{}}
	for i := range state.Engaged {
		b.Now = append(b.Now, switchBody(&state.Engaged[i]))
	}
	for i := range history {
		h := &history[i]
		one := switchBody(&h.Switch)
		one.ReleasedAt, one.ReleasedBy, one.ReleaseReason = timeOrNull(h.ReleasedAt), orNull(h.ReleasedBy), orNull(h.ReleaseReason)
		b.History = append(b.History, one)
	}
	return &switchesOutput{Body: b}, nil
}

func (a *API) engageSwitch(ctx context.Context, in *switchInput) (*switchReportOutput, error) {
	var b EngageBody
	if err := in.into(&b); err != nil {
		return nil, err
	}
	if b.Scope == "" {
		b.Scope = killswitch.All
	}
	return switchReport(a.cfg.KillSwitch.EngageSwitch(ctx, killswitch.Switch{
		Level: b.Level, Scope: b.Scope, Project: b.ProjectID, Label: b.Label, Root: b.Root, Reason: b.Reason,
	}))
}

func (a *API) releaseSwitch(ctx context.Context, in *switchInput, level killswitch.Level) (*switchReportOutput, error) {
	var b ReleaseBody
	if err := in.into(&b); err != nil {
		return nil, err
	}
	return switchReport(a.cfg.KillSwitch.ReleaseSwitch(ctx, level, b.ID, b.Reason))
}

func switchReport(r killswitch.Report, err error) (*switchReportOutput, error) {
	if err != nil {
		return nil, err
	}
	b := SwitchReportBody{
		Switch: switchBody(&r.Switch), Persisted: r.Unpersisted == "", Problem: orNull(r.Unpersisted), Workers: []SwitchWorkerBody{}, Unreachable: []string{},
	}
	for i := range r.Workers {
		w := &r.Workers[i]
		if w.Error != "" {
			b.Unreachable = append(b.Unreachable, w.Worker)
			continue
		}
		b.Killed, b.Frozen, b.Resumed, b.Failed = b.Killed+w.Done.Killed, b.Frozen+w.Done.Frozen, b.Resumed+w.Done.Resumed, b.Failed+w.Done.Failed
		b.Workers = append(b.Workers, SwitchWorkerBody{
			WorkerID: w.Worker, Killed: w.Done.Killed, Frozen: w.Done.Frozen, Resumed: w.Done.Resumed, Failed: w.Done.Failed,
			Problem: orNull(w.Done.Problem), TookMS: float64(w.Took.Microseconds()) / 1000,
		})
	}
	return &switchReportOutput{Body: b}, nil
}
