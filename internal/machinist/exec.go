package machinist

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/machine"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// execTime is how long a command may run that does not say.
const execTime = 300 * time.Second

// ExecMachine runs a command in a machine and returns what came of it. It waits
// for a machine that is on its way to be started. A command that runs out of
// its time is killed with all that it started, and that is a result.
func (k *Machinist) ExecMachine(ctx context.Context, ref machine.Ref, c machine.Command) (machine.Result, error) {
	m, err := k.started(ctx, ref)
	if err != nil {
		return machine.Result{}, err
	}
	if c.Timeout == 0 {
		c.Timeout = execTime
	}
	return k.exec(policy.AsOwner(ctx, m.Owner), m.Sandbox, c)
}

// started returns a machine that runs, when it does.
func (k *Machinist) started(ctx context.Context, ref machine.Ref) (machine.Machine, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, execWait, errors.New("it takes long"))
	defer cancel()
	for {
		moved := k.moved.Wait() // before the look
		m, err := k.Machine(context.WithoutCancel(ctx), ref)
		if err != nil || m.State == machine.Started {
			return m, err
		}
		if !m.Wanted || m.State != machine.Created && m.State != machine.Starting && m.State != machine.Replacing {
			return m, m.State.Demand("run a command", machine.Started)
		}
		select {
		case <-moved:
		case <-time.After(rhythm): // another manager may have moved it
		case <-bounded.Done():
			return m, fault.New(fault.Unavailable, "the machine is still %s; try again soon", m.State).WithCode("not_started").Retry(time.Second)
		}
	}
}

func (k *Machinist) exec(ctx context.Context, box string, c machine.Command) (r machine.Result, err error) {
	e, _, err := k.Execs.RunExec(ctx, live.Command{Sandbox: box, Command: c.Command, Stdin: []byte(c.Stdin), Timeout: c.Timeout}, run.Asked{})
	if err != nil {
		return r, err
	}
	if e, err = k.Execs.WaitExec(ctx, e.ID); err != nil {
		return r, err
	}
	res := e.Result
	if res.Verdict == sandbox.Lost {
		return r, fault.New(fault.Conflict, "the machine ended while the command ran: %s", res.Cause).WithCode("lost")
	}
	r = machine.Result{ExitCode: res.ExitCode, Signal: res.Signal, TimedOut: res.Verdict == sandbox.Timeout, OOM: res.Verdict == sandbox.OOM}
	if r.TimedOut {
		r.ExitCode, r.Signal = -1, 9
	}
	for _, x := range []struct {
		stream sandbox.Stream
		out    run.Output
		into   *string
		cut    *bool
	}{{sandbox.Stdout, res.Stdout, &r.Stdout, &r.StdoutTruncated}, {sandbox.Stderr, res.Stderr, &r.Stderr, &r.StderrTruncated}} {
		data, err := k.Execs.ExecOutput(ctx, &e, x.stream, maxOutput)
		if err != nil {
			return r, err
		}
		*x.into, *x.cut = strings.ToValidUTF8(string(data), "\uFFFD"), x.out.Truncated || x.out.Kept > maxOutput
	}
	return r, nil
}

// MachineProcesses lists what runs in a machine, as its own /proc tells: it is
// hostile, so that nothing of it is believed but shown.
func (k *Machinist) MachineProcesses(ctx context.Context, ref machine.Ref) ([]machine.Process, error) {
	m, err := k.started(ctx, ref)
	if err != nil {
		return nil, err
	}
	const look = 10 * time.Second
	r, err := k.exec(policy.AsOwner(ctx, m.Owner), m.Sandbox, machine.Command{Command: []string{"sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null"}, Timeout: look})
	if err != nil {
		return nil, err
	}
	return readProcesses(r.Stdout), nil
}

// readProcesses reads lines of /proc/PID/stat; lines that are none are left out.
func readProcesses(text string) []machine.Process {
	const most, name, tick, page = 1000, 64, 10 * time.Millisecond, 4096
	list := []machine.Process{}
	for line := range strings.Lines(text) {
		from, to := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
		if from < 1 || to < from || len(list) == most {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(line[:from]))
		fields := strings.Fields(line[to+1:])
		if err != nil || len(fields) < 22 {
			continue
		}
		number := func(i int) int64 {
			n, _ := strconv.ParseInt(fields[i], 10, 32) // what is none counts as 0
			return max(n, 0)
		}
		comm := line[from+1 : to]
		list = append(list, machine.Process{
			PID: pid, Command: strings.ToValidUTF8(comm[:min(len(comm), name)], "?"), CPU: time.Duration(number(11)+number(12)) * tick,
			System: time.Duration(number(12)) * tick, Started: time.Duration(number(19)) * tick, Memory: number(21) * page,
		})
	}
	slices.SortFunc(list, func(a, b machine.Process) int { return a.PID - b.PID })
	return list
}
