package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/aurea-dev/aurea/client"
	"github.com/aurea-dev/aurea/internal/config"
)

// anyShell becomes the best shell that the image has.
const anyShell = `if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi`

func (inv *invocation) sandboxShellCommand() *cobra.Command {
	var env []string
	var cwd, user string
	var asked client.Command
	cmd := inv.onSandbox(&cobra.Command{
		Use: "shell ID", Short: "Open a shell in a sandbox, in this terminal",
		Long: "Opens a shell in this terminal: bash where the image has it, else sh. All keys go inside, Ctrl-C too.\n" +
			"A connection that breaks is opened again and nothing typed or printed is lost; Ctrl-C gives up meanwhile.\n" +
			"What runs inside draws on this terminal: open a shell only where you would look at its output unfiltered.\n\n" +
			"With a standard input that is no terminal the shell has none either: it reads its commands from there.\n\n" +
			"The exit code is the shell's.",
	}, func(ctx context.Context, c *client.Client, s client.Sandbox, _ []string) error {
		asked.Command = []string{"sh", "-c", anyShell}
		if inv.keyboard() == nil {
			asked.TTY, asked.KeepStdin = false, true
			return inv.exec(ctx, c, s, execFlags{input: true}, asked)
		}
		return inv.inTerminal(ctx, c, s, asked, true)
	})
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		forever := 0.0
		asked = client.Command{Cwd: cwd, User: user, TTY: true, Timeout: &forever}
		asked.Env, err = pairs(cmd, "env", env)
		return err
	}
	cmd.Flags().StringArrayVarP(&env, "env", "e", nil, "a variable of its environment, as NAME=VALUE; can be given again")
	cmd.Flags().StringVarP(&cwd, "cwd", "w", "", "where it begins; /workspace by default")
	cmd.Flags().StringVarP(&user, "user", "u", "", "as which user of the image")
	return cmd
}

// inTerminal runs a command that has a terminal: ours, where we have one. When
// we are asked to end, the command is told that its terminal is gone.
func (inv *invocation) inTerminal(ctx context.Context, c *client.Client, s client.Sandbox, asked client.Command, input bool) error {
	if inv.json {
		return &usageError{"a terminal cannot be printed as JSON", "leave out -t, or --json"}
	}
	var keyboard *os.File
	if input {
		if keyboard = inv.keyboard(); keyboard == nil {
			// A terminal has no end of input that every program takes for one.
			return &usageError{"standard input is not a terminal", "use `aurea sandbox exec -i`, without -t"}
		}
	}
	if _, set := asked.Env["TERM"]; !set {
		asked.Env["TERM"] = config.Terminal()
	}
	asked.Cols, asked.Rows, _ = terminal(inv.Out)
	e, err := c.StartExec(ctx, s.ID, asked, 0)
	if err != nil {
		return err
	}
	ended, err := inv.joined(ctx, c, e, keyboard)
	if err != nil {
		const hangUp = 1
		_ = bounded(ctx, func(ctx context.Context) error { return c.SignalExec(ctx, e.SandboxID, e.ID, hangUp, true) }) // it ends with its sandbox at the latest
		return err
	}
	return inv.exitAsExec(ended)
}

// keyboard is our standard input where that is a terminal, else nil.
func (inv *invocation) keyboard() *os.File {
	if f, ok := inv.In.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// joined joins this terminal to that of an exec until it ends; without a keyboard
// it only draws. The terminal is given back as it was on every way out.
func (inv *invocation) joined(ctx context.Context, c *client.Client, e client.Exec, keyboard *os.File) (client.Exec, error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	if keyboard != nil {
		before, err := term.MakeRaw(int(keyboard.Fd()))
		if err != nil {
			return e, fmt.Errorf("take over the terminal: %w", err)
		}
		defer func() { _ = term.Restore(int(keyboard.Fd()), before) }()
	}
	link := &terminalLink{inv: inv}
	a := c.Attach(ctx, e.SandboxID, e.ID, client.AttachOptions{Stdout: inv.Out, Stderr: inv.Err, Connection: link.tell})
	stop := inv.sizes(a)
	defer stop()
	if keyboard != nil {
		go inv.feed(a, keys{to: a, link: link, giveUp: giveUp}, e.ID, giveUp) // ends with its input, or with us
	}
	return a.Wait()
}

// sizes tells the exec the size of our terminal whenever it changes.
func (inv *invocation) sizes(a *client.Attachment) (stop func()) {
	changed, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(changed, syscall.SIGWINCH)
	tell := func() {
		if cols, rows, ok := terminal(inv.Out); ok {
			a.Resize(min(cols, 1000), min(rows, 1000))
		}
	}
	tell() // it may have changed since the start
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-changed:
				tell()
			case <-done:
				return
			}
		}
	})
	return func() { signal.Stop(changed); close(done); watch.Wait() }
}

// terminalLink says on the terminal how the connection stands.
type terminalLink struct {
	inv  *invocation
	lost atomic.Bool
}

func (l *terminalLink) tell(err error) {
	switch was := l.lost.Swap(err != nil); {
	case err != nil && !was:
		_, _ = fmt.Fprintf(l.inv.Err, "\r\naurea: the connection is lost and is opened again; Ctrl-C gives up (%s)\r\n", plain(err.Error()))
	case err == nil && was:
		_, _ = fmt.Fprint(l.inv.Err, "\r\naurea: the connection is back\r\n")
	}
}

var errGaveUp = errors.New("the connection was lost, and not waited for")

// keys passes on what is typed. Ctrl-C goes inside like any other key, unless
// there is no way inside.
type keys struct {
	to     io.Writer
	link   *terminalLink
	giveUp context.CancelCauseFunc
}

func (k keys) Write(p []byte) (int, error) {
	const ctrlC = 3
	if k.link.lost.Load() && bytes.IndexByte(p, ctrlC) >= 0 {
		k.giveUp(errGaveUp)
		return 0, errGaveUp
	}
	return k.to.Write(p)
}
