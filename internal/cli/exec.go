package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
)

// execFlags are what `aurea sandbox exec` was told.
type execFlags struct {
	env                     []string
	cwd, user, timeout      string
	input, tty, detach, raw bool
}

func (inv *invocation) sandboxExecCommand() *cobra.Command {
	var f execFlags
	var asked client.Command
	cmd := inv.onSandbox(&cobra.Command{
		Use: "exec ID [flags] -- COMMAND [ARG...]", Short: "Run a command in a sandbox, and end as it ends",
		Long: "Runs a command and prints what it writes as it writes it: stdout to stdout, stderr to stderr. It goes\n" +
			"on in the sandbox whatever becomes of the connection, and a connection that breaks is opened again:\nno byte of output is lost or printed twice.\n\n" +
			"Ctrl-C sends the command an interrupt; a second one kills it.\n\n" +
			"The exit code is the command's own; 124 after a timeout, 128 and the signal's number after a signal.\nWhat hinders the command itself has the codes of `aurea --help`, and says so.",
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return usage(cmd, "name a sandbox, and a command after --")
			}
			return nil
		},
	}, func(ctx context.Context, c *client.Client, s client.Sandbox, args []string) error {
		asked.Command = args
		return inv.exec(ctx, c, s, f, asked)
	})
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		if f.detach && (f.input || f.tty) {
			return usage(cmd, "-d starts and goes; it cannot be given with -i or -t")
		}
		asked = client.Command{Cwd: f.cwd, User: f.user, KeepStdin: f.input, TTY: f.tty}
		if asked.Env, err = pairs(cmd, "env", f.env); err != nil {
			return err
		}
		asked.Timeout, err = lasting(cmd, "timeout", f.timeout)
		return err
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.env, "env", "e", nil, "a variable of its environment, as NAME=VALUE; can be given again")
	flags.StringVarP(&f.cwd, "cwd", "w", "", "where it runs; /workspace by default")
	flags.StringVarP(&f.user, "user", "u", "", "as which user of the image")
	flags.StringVar(&f.timeout, "timeout", "", "how long it may take, as seconds or 1m30s; 0 is for ever, by default what the server says")
	flags.BoolVarP(&f.input, "interactive", "i", false, "give it our standard input")
	flags.BoolVarP(&f.tty, "tty", "t", false, "give it a terminal; with -i, our standard input must be one")
	flags.BoolVarP(&f.detach, "detach", "d", false, "print its id and go; aurea sandbox logs has its output")
	flags.BoolVar(&f.raw, "raw", false, "print every byte, also on a terminal")
	return cmd
}

func (inv *invocation) exec(ctx context.Context, c *client.Client, s client.Sandbox, f execFlags, asked client.Command) error {
	if f.tty {
		return inv.inTerminal(ctx, c, s, asked, f.input)
	}
	e, err := c.StartExec(ctx, s.ID, asked, 0)
	if err != nil {
		return err
	}
	if f.detach {
		if inv.json {
			return inv.printJSON(e)
		}
		_, err := fmt.Fprintln(inv.Out, plain(e.ID))
		return err
	}
	var turn sync.Mutex
	stdout, stderr := inv.logWriter(&turn, client.Stdout, f.raw), inv.logWriter(&turn, client.Stderr, f.raw)
	if inv.json {
		stdout, stderr = io.Discard, io.Discard // the record has it
	}
	e, err = inv.guarded(ctx, c, e, func(ctx context.Context) (client.Exec, error) {
		if !f.input {
			return c.FollowExec(ctx, s.ID, e.ID, client.Offsets{}, stdout, stderr)
		}
		ctx, giveUp := context.WithCancelCause(ctx)
		defer giveUp(nil)
		a := c.Attach(ctx, s.ID, e.ID, client.AttachOptions{Stdout: stdout, Stderr: stderr})
		go inv.feed(a, a, e.ID, giveUp) // ends with its input, or with us
		return a.Wait()
	})
	if err != nil {
		return fedInPart(ctx, c, s.ID, err)
	}
	return inv.exitAsExec(e)
}

// feed gives an exec our standard input to its end, by way of to.
func (inv *invocation) feed(a *client.Attachment, to io.Writer, exec string, giveUp context.CancelCauseFunc) {
	in := &ourInput{from: inv.In}
	_, _ = io.Copy(to, in) // what is not taken is told by Wait, or not wanted
	if in.failed != nil {
		giveUp(&client.InputError{Exec: exec, Err: fmt.Errorf("read the standard input: %w", in.failed)})
		return
	}
	a.CloseInput()
}

// ourInput knows whether it was read to its end.
type ourInput struct {
	from   io.Reader
	failed error
}

func (r *ourInput) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.failed = err
	}
	return n, err
}

// fedInPart kills a command that did not get all of its input: it would wait for
// the rest for ever, and must not take a part for the whole.
func fedInPart(ctx context.Context, c *client.Client, sandbox string, err error) error {
	var in *client.InputError
	if !errors.As(err, &in) {
		return err
	}
	if kill := bounded(ctx, func(ctx context.Context) error { _, err := c.KillExec(ctx, sandbox, in.Exec); return err }); kill != nil {
		return fmt.Errorf("%w; the command could not be killed, and may go on: %w", err, kill)
	}
	return fmt.Errorf("%w; the command was killed", err)
}

// guarded does what follows an exec. The first interrupt is passed on to the
// command, which may take it as it likes; the second kills it.
func (inv *invocation) guarded(ctx context.Context, c *client.Client, e client.Exec, follow func(ctx context.Context) (client.Exec, error)) (client.Exec, error) {
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var guard sync.WaitGroup
	defer guard.Wait()
	defer stop(nil)
	guard.Go(func() {
		select {
		case <-ctx.Done():
		case <-work.Done():
			return
		}
		const interrupt = 2
		if err := bounded(work, func(ctx context.Context) error { return c.SignalExec(ctx, e.SandboxID, e.ID, interrupt, true) }); err != nil {
			stop(fmt.Errorf("pass the interrupt on to exec %s, which may go on: %w", e.ID, err))
			return
		}
		select {
		case <-inv.hurry:
		case <-work.Done():
			return
		}
		if err := bounded(work, func(ctx context.Context) error { _, err := c.KillExec(ctx, e.SandboxID, e.ID); return err }); err != nil {
			stop(fmt.Errorf("kill exec %s, which may go on: %w", e.ID, err))
		}
	})
	return follow(work)
}

// bounded does a call that must not last. That the exec has ended meanwhile is
// no error.
func bounded(ctx context.Context, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	err := call(ctx)
	var p *client.Problem
	if errors.As(err, &p) && (p.Code == "exec_ended" || p.Code == "sandbox_ended") {
		return nil
	}
	return err
}

// exitAsExec ends as the command did.
func (inv *invocation) exitAsExec(e client.Exec) error {
	if inv.json {
		if err := inv.printJSON(e); err != nil {
			return err
		}
	}
	code, why, cause := ExitFailed, "", or(e.Cause, "nobody says why")
	if e.ExitCode != nil {
		code = *e.ExitCode
	}
	switch or(e.Verdict, "") {
	case "timeout":
		code, why = exitTimeout, "it was ended after its timeout"
		if e.Timeout != nil {
			why += fmt.Sprintf(" of %g s", *e.Timeout)
		}
	case "oom":
		why = "it ran out of memory"
	case "limit":
		why = "it went over a limit: " + cause
	case "killed":
		why = "it was killed: " + cause
	case "lost":
		why = "it was lost: " + cause
	}
	if why != "" && !inv.json {
		_, _ = fmt.Fprintf(inv.Err, "aurea: %s\n", plain(why))
	}
	switch {
	case code == 0 && why == "":
		return nil
	case code <= 0 || code > 255:
		code = ExitFailed
	}
	return quietError{programError(code)}
}

func (inv *invocation) sandboxProcessesCommand() *cobra.Command {
	var all bool
	cmd := inv.onSandbox(&cobra.Command{Use: "ps ID", Short: "List the commands that run in a sandbox, newest first"},
		func(ctx context.Context, c *client.Client, s client.Sandbox, _ []string) error {
			list, now := []client.Exec{}, time.Now()
			rows := [][]string{{"ID", "STATE", "EXIT", "STARTED", "COMMAND"}}
			for e, err := range c.Execs(ctx, s.ID, "") {
				if err != nil {
					return err
				}
				if e.Ended() && !all {
					continue
				}
				exit := "-"
				if e.ExitCode != nil {
					exit = strconv.Itoa(*e.ExitCode) + " " + or(e.Verdict, "")
				}
				list = append(list, e)
				rows = append(rows, []string{e.ID, e.State, exit, inv.moment(e.StartedAt, now), clip(strings.Join(e.Command, " "), 60)})
			}
			if inv.json {
				return inv.printJSON(list)
			}
			return inv.printTable(rows)
		})
	cmd.Flags().BoolVarP(&all, "all", "a", false, "those that have ended too")
	return cmd
}

func (inv *invocation) sandboxLogsCommand() *cobra.Command {
	var follow, raw bool
	var stream string
	cmd := inv.onSandbox(&cobra.Command{
		Use: "logs ID EXEC", Short: "Print the output of a command, also when its sandbox is gone", Args: both("a sandbox and one of its commands; `aurea sandbox ps -a` lists them"),
		Long: "Prints what the command wrote to its stdout and stderr, each to ours.\nOn a terminal, control characters are left out unless --raw is given: they could take it over.",
	}, func(ctx context.Context, c *client.Client, s client.Sandbox, args []string) error {
		return inv.execLogs(ctx, c, s.ID, args[0], stream, follow, raw)
	})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the command has ended")
	cmd.Flags().BoolVar(&raw, "raw", false, "print every byte, also on a terminal")
	cmd.Flags().StringVar(&stream, "stream", "", "only stdout, or only stderr")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if stream != "" && stream != client.Stdout && stream != client.Stderr {
			return usage(cmd, "--stream must be stdout or stderr")
		}
		return nil
	}
	return cmd
}

func (inv *invocation) execLogs(ctx context.Context, c *client.Client, sandbox, id, only string, follow, raw bool) error {
	var turn sync.Mutex
	to := map[string]io.Writer{}
	for _, stream := range []string{client.Stdout, client.Stderr} {
		if only == "" || only == stream {
			to[stream] = inv.logWriter(&turn, stream, raw)
		}
	}
	if follow {
		_, err := c.FollowExec(ctx, sandbox, id, client.Offsets{}, to[client.Stdout], to[client.Stderr])
		return err
	}
	for _, stream := range []string{client.Stdout, client.Stderr} {
		w := to[stream]
		if w == nil {
			continue
		}
		for at := int64(0); ; {
			next, ended, err := c.ExecOutput(ctx, sandbox, id, stream, at, w)
			if err != nil {
				return err
			}
			if ended || next == at {
				break
			}
			at = next
		}
	}
	return nil
}
