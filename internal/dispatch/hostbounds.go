package dispatch

import (
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// maxExecs bounds the execs of one sandbox that a worker names.
const maxExecs = 4096

func checkStandings(all []live.Standing) error {
	if err := checkCount("sandboxes", len(all), MaxSandboxes); err != nil {
		return err
	}
	for i, s := range all {
		if err := CheckSandboxID(at("sandboxes", i)+".id", s.ID); err != nil {
			return err
		}
		if err := checkPaused(at("sandboxes", i)+".paused", s.Paused); err != nil {
			return err
		}
		if err := checkCount(at("sandboxes", i)+".execs", len(s.Execs), maxExecs); err != nil {
			return err
		}
		for _, id := range s.Execs {
			if err := checkWord(at("sandboxes", i)+".execs", id); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkPaused(field string, p live.Paused) error {
	switch p {
	case "", live.Frozen, live.Checkpointed:
		return nil
	}
	return fault.Field(field, "is not a way to be paused")
}

// CheckSandboxID refuses what is no id of a sandbox: it becomes a name in
// folders and of hosts.
func CheckSandboxID(field, id string) error {
	if err := (sandbox.Spec{ID: id}).Validate(); err != nil {
		return fault.Field(field, "must be 1 to 40 lower-case letters and digits")
	}
	return nil
}

// CheckExecID refuses what is no id of an exec.
func CheckExecID(field, id string) error {
	if err := (sandbox.ExecSpec{ID: id, Command: []string{"x"}}).Validate(); err != nil {
		return fault.Field(field, "must be 1 to 64 letters, digits and dashes")
	}
	return nil
}

// Check refuses a request that is out of bounds.
func (r TellRequest) Check() error {
	if err := CheckSession(r.Session); err != nil {
		return err
	}
	if err := checkCount("execs and sandboxes", len(r.Execs)+len(r.Sandboxes), MaxTold); err != nil {
		return err
	}
	for i := range r.Execs {
		if err := checkExecEnded(at("execs", i), &r.Execs[i]); err != nil {
			return err
		}
	}
	for i := range r.Sandboxes {
		if err := checkEnded(at("sandboxes", i), &r.Sandboxes[i]); err != nil {
			return err
		}
	}
	return nil
}

// MaxWithin bounds how long an answer to RunExec may wait for the end.
const MaxWithin = time.Second

// CheckRunExec checks what RunExec is asked.
func CheckRunExec(c live.Command, within time.Duration) error {
	if within < 0 || within > MaxWithin {
		return fault.Field("within_ns", "must be from 0 to %d", MaxWithin)
	}
	return CheckExecOrder(c)
}

// CheckExecEnded checks the end that an answer brings along; nil is none.
func CheckExecEnded(e *live.ExecEnded) error {
	if e == nil {
		return nil
	}
	return checkExecEnded("ended", e)
}

func checkExecEnded(field string, e *live.ExecEnded) error {
	if err := CheckExecID(field+".id", e.ID); err != nil {
		return err
	}
	if err := CheckSandboxID(field+".sandbox", e.Sandbox); err != nil {
		return err
	}
	if err := checkExecResult(field+".result", &e.Result); err != nil {
		return err
	}
	if err := checkCount(field+".inline", len(e.Inline), 2); err != nil {
		return err
	}
	for digest, data := range e.Inline {
		if err := checkDigest(field+".inline", digest); err != nil {
			return err
		}
		if len(data) > MaxInline {
			return fault.Field(field+".inline", "has a blob of %d bytes; at most %d ride along", len(data), MaxInline)
		}
	}
	return nil
}

func checkExecResult(field string, r *live.ExecResult) error {
	if !r.Verdict.Valid() {
		return fault.Field(field+".verdict", "is not a verdict")
	}
	if err := checkText(field+".cause", r.Cause, maxText); err != nil {
		return err
	}
	if r.ExitCode < -1 || r.ExitCode > 255 || r.Signal < 0 || r.Signal > maxSignal {
		return fault.Field(field+".exit_code", "is out of range")
	}
	for _, o := range []run.Output{r.Stdout, r.Stderr} {
		if o.Kept < 0 || o.Seen < o.Kept || o.Kept > MaxExecOutput {
			return fault.Field(field, "has counts of output that cannot be")
		}
		if err := checkDigest(field+".sha256", o.SHA256); err != nil {
			return err
		}
	}
	return nil
}

// maxSignal is the largest number of a signal.
const maxSignal = 64

func checkEnded(field string, e *live.Ended) error {
	if err := CheckSandboxID(field+".id", e.ID); err != nil {
		return err
	}
	if err := checkText(field+".reason", e.Reason, maxText); err != nil {
		return err
	}
	if e.At.After(time.Now().Add(24 * time.Hour)) {
		return fault.Field(field+".at", "is in the future")
	}
	if !e.Outcome.Valid() {
		return fault.Field(field+".outcome", "is not an outcome")
	}
	return nil
}

// CheckSandboxOrder refuses an order that is out of bounds. Both ends of the
// wire call it; whether it can be fulfilled is the worker's to say.
func CheckSandboxOrder(o live.Order) error {
	if err := CheckSandboxID("id", o.ID); err != nil {
		return err
	}
	for _, w := range []struct{ field, text string }{{"owner", o.Owner}, {"driver", o.Spec.Driver}, {"restore", o.Restore}, {"trace", o.Trace}, {"parent", o.Parent}} {
		if err := checkText(w.field, w.text, maxWord); err != nil {
			return err
		}
	}
	if err := checkText("image", o.Spec.Image, maxText); err != nil {
		return err
	}
	if err := checkEnv(o.Spec.Env); err != nil {
		return err
	}
	if err := checkCount("labels", len(o.Spec.Labels), maxNames); err != nil {
		return err
	}
	for key, value := range o.Spec.Labels {
		if err := checkText("labels", key, maxWord); err != nil {
			return err
		}
		if err := checkText("labels", value, maxText); err != nil {
			return err
		}
	}
	if err := checkWorkspaceFiles(o.Files); err != nil {
		return err
	}
	switch o.Spec.Network {
	case "", sandbox.NetworkNone, sandbox.NetworkController, sandbox.NetworkAllowlist, sandbox.NetworkFull:
	default:
		return fault.Field("network", "is not a network mode")
	}
	if o.Restore != "" {
		if err := CheckSnapshotID("restore", o.Restore); err != nil {
			return err
		}
	}
	return checkLimits("limits", o.Spec.Limits)
}

// CheckExecOrder refuses a command that is out of bounds.
func CheckExecOrder(c live.Command) error {
	if err := CheckSandboxID("sandbox", c.Sandbox); err != nil {
		return err
	}
	spec := sandbox.ExecSpec{ID: c.ID, Command: c.Command, Env: c.Env, Dir: c.Dir, User: c.User}
	if err := spec.Validate(); err != nil {
		return err
	}
	if err := checkCount("command", len(c.Command), maxRunNames); err != nil {
		return err
	}
	if err := checkEnv(c.Env); err != nil {
		return err
	}
	if err := checkText("user", c.User, maxWord); err != nil {
		return err
	}
	if c.Timeout < 0 || c.OutputCap < 0 || c.OutputCap > MaxExecOutput {
		return fault.Field("timeout_ns", "timeout and output_cap must not be negative, and output_cap at most %d", MaxExecOutput)
	}
	if len(c.Stdin) > MaxOrderBytes {
		return fault.Field("stdin", "has %d bytes; at most %d are allowed", len(c.Stdin), MaxOrderBytes)
	}
	return nil
}
