package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/language"
)

// exitTimeout is the exit code after a timeout, as timeout(1) has it. That after
// a signal is the server's to say: 128 and its number.
const exitTimeout = 124

// maxCode bounds what is read of a file: no server takes more.
const maxCode = 10 << 20

// runFlags are what `aurea run` was told.
type runFlags struct {
	language, image, driver, memory, timeout, stdin, save string
	cpus                                                  float64
	files, env                                            []string
	project                                               int64
	writable, raw                                         bool
}

func (inv *invocation) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "run FILE|- [-- ARG...]", Short: "Run a program in a sandbox of its own, and end as it ends",
		Long: "Runs a program in a fresh sandbox, with no network, and prints what it writes as it writes it:\n" +
			"stdout to stdout, stderr to stderr. - reads the program from standard input. Ctrl-C ends it.\n\n" +
			"The language is told by the file's name, else by its first line (#!), else by --language.\n\n" +
			"Where no server runs on this machine, one is started for this run alone and is gone afterwards.\n\n" +
			"The exit code is the program's own; 124 after a timeout, 128 and the signal's number after a\nsignal. What hinders the run itself has the codes of `aurea --help`, and says so.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || cmd.ArgsLenAtDash() == 0 {
				return usage(cmd, "name a file, or - for standard input")
			}
			if at := cmd.ArgsLenAtDash(); len(args) > 1 && at != 1 {
				return usage(cmd, "put arguments of the program after --")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return inv.run(cmd, f, args) },
	}
	offer(cmd, config.Flags(config.Client))
	flags := cmd.Flags()
	flags.StringVarP(&f.language, "language", "l", "", "what it is written in; see aurea languages")
	flags.StringArrayVar(&f.files, "file", nil, "a file to put beside the program, as PATH or NAME=PATH; can be given again")
	flags.StringVar(&f.timeout, "timeout", "", "how long it may take, as seconds or 1m30s; by default what the server says")
	flags.StringVar(&f.memory, "memory", "", "how much memory it may use, such as 256m")
	flags.Float64Var(&f.cpus, "cpus", 0, "how many processors it may use, such as 0.5")
	flags.StringArrayVar(&f.env, "env", nil, "a variable of its environment, as NAME=VALUE; can be given again")
	flags.StringVar(&f.image, "image", "", "the image that it runs in")
	flags.StringVar(&f.driver, "driver", "", "how its sandbox is made")
	flags.StringVar(&f.stdin, "stdin", "", "a file that is its standard input; - is ours")
	flags.StringVar(&f.save, "artifacts", "", "folder to put what it leaves in its artifacts folder")
	flags.Int64Var(&f.project, "project", 0, "the project that it belongs to")
	flags.BoolVar(&f.writable, "writable", false, "let it change its own code and files")
	flags.BoolVar(&f.raw, "raw", false, "print every byte, also on a terminal")
	return cmd
}

func (inv *invocation) run(cmd *cobra.Command, f runFlags, args []string) error {
	cfg, err := inv.load(cmd, config.Client)
	if err != nil {
		return err
	}
	request, err := inv.readRequest(cmd, f, args)
	if err != nil {
		return err
	}
	key, err := cfg.LoadKey()
	if err != nil {
		return err
	}
	c, err := client.New(cfg.Server, client.Options{Key: key})
	if err != nil {
		return usage(cmd, "%s", err)
	}
	defer c.Close()
	if cfg.Given("server") || inv.program.Once == nil || !away(cmd.Context(), c) {
		return inv.runAt(cmd.Context(), c, request, f)
	}
	own, err := inv.load(cmd, config.Up)
	if err != nil {
		return err
	}
	return inv.program.Once(cmd.Context(), inv.start(own), func(ctx context.Context, server string) error {
		c, err := client.New(server, client.Options{})
		if err != nil {
			return err
		}
		defer c.Close()
		return inv.runAt(ctx, c, request, f)
	})
}

// away reports whether nobody answers at all. One who answers with an error is
// there, and says it again of the run.
func away(ctx context.Context, c *client.Client) bool {
	var gone *client.Unreachable
	return errors.As(c.Ready(ctx), &gone)
}

// readRequest makes the request of what the command line says.
func (inv *invocation) readRequest(cmd *cobra.Command, f runFlags, args []string) (client.Run, error) {
	if args[0] == "-" && f.stdin == "-" {
		return client.Run{}, usage(cmd, "standard input cannot be both the program and its input")
	}
	code, err := inv.readText(args[0])
	if err != nil {
		return client.Run{}, err
	}
	r := client.Run{
		Code: code, Language: f.language, Args: args[1:], Image: f.image, Driver: f.driver, CPULimit: f.cpus, MemoryLimit: f.memory, ProjectID: f.project,
	}
	if r.Language == "" {
		if r.Language, err = languageOf(cmd, args[0], code); err != nil {
			return client.Run{}, err
		}
	}
	if r.Env, err = pairs(cmd, "env", f.env); err != nil {
		return client.Run{}, err
	}
	if r.Files, err = inv.inputs(cmd, f.files); err != nil {
		return client.Run{}, err
	}
	if f.stdin != "" {
		if r.Stdin, err = inv.readText(f.stdin); err != nil {
			return client.Run{}, err
		}
	}
	if f.timeout != "" {
		if r.Timeout, err = seconds(cmd, f.timeout); err != nil {
			return client.Run{}, err
		}
	}
	readOnly := !f.writable
	r.ReadOnly = &readOnly
	return r, nil
}

// languageOf tells the language of a program by what we ship: a server may know
// more, whose names can be said with --language.
func languageOf(cmd *cobra.Command, name, code string) (string, error) {
	known, err := language.Default()
	if err != nil {
		return "", err
	}
	l, ok := known.ForFile(name, []byte(code))
	if !ok {
		return "", usage(cmd, "the language of %s cannot be told; say it with --language: %s", name, strings.Join(known.Names(), ", "))
	}
	return l.Name, nil
}

func (inv *invocation) readText(name string) (string, error) {
	r := inv.In
	if name != "-" {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			return "", fault.New(fault.NotFound, "there is no %s", name)
		}
		if err != nil {
			return "", fmt.Errorf("read %s: %w", name, err)
		}
		defer func() { _ = f.Close() }()
		r = f
	}
	text, err := io.ReadAll(io.LimitReader(r, maxCode+1))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > maxCode {
		return "", fault.New(fault.TooLarge, "%s has more than %d bytes", name, maxCode)
	}
	return string(text), nil
}

// inputs reads the files that go beside the program.
func (inv *invocation) inputs(cmd *cobra.Command, texts []string) (map[string]string, error) {
	files := map[string]string{}
	for _, text := range texts {
		name, path, named := strings.Cut(text, "=")
		if !named {
			name, path = filepath.Base(text), text
		}
		if _, twice := files[name]; twice || name == "" || path == "" {
			return nil, usage(cmd, "--file must be PATH or NAME=PATH, and each name once, not %q", text)
		}
		content, err := inv.readText(path)
		if err != nil {
			return nil, err
		}
		files[name] = content
	}
	return files, nil
}

// seconds reads a time as people write it.
func seconds(cmd *cobra.Command, text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		var d time.Duration
		d, err = time.ParseDuration(text)
		n = int(math.Ceil(d.Seconds()))
	}
	if err != nil || n <= 0 {
		return 0, usage(cmd, "--timeout must be seconds, or such as 1m30s, not %q", text)
	}
	return n, nil
}

// stopWithin bounds how long a run that is interrupted may take to be stopped.
const stopWithin = 5 * time.Second

// runAt does the run at a server: it follows the output while it runs, and ends
// it when ctx does.
func (inv *invocation) runAt(ctx context.Context, c *client.Client, request client.Run, f runFlags) error {
	submitted, err := c.SubmitRuns(ctx, request)
	if err != nil {
		return err
	}
	if len(submitted) != 1 {
		return fmt.Errorf("read the answer of %s: it names %d runs for one", c.Server(), len(submitted))
	}
	id := submitted[0].RunID
	ended, err := inv.followRun(ctx, c, id, f)
	if err != nil {
		if ctx.Err() != nil {
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
			defer cancel()
			_, _ = c.CancelRun(stop, id, "interrupted") // it may have ended meanwhile
			return context.Cause(ctx)
		}
		return err
	}
	if f.save != "" && ended.Result != nil {
		if err := saveArtifacts(f.save, ended.Result); err != nil {
			return err
		}
	}
	if inv.json {
		var told any = ended
		if ended.Result != nil {
			told = ended.Result
		}
		if err := inv.printJSON(told); err != nil {
			return err
		}
	}
	return inv.exitAs(ended)
}

// followRun copies both streams while the run goes on, and returns how it ended.
func (inv *invocation) followRun(ctx context.Context, c *client.Client, id string, f runFlags) (client.RunState, error) {
	if inv.json {
		return c.WaitRun(ctx, id)
	}
	var turn sync.Mutex
	return c.FollowRun(ctx, id, inv.logWriter(&turn, client.Stdout, f.raw), inv.logWriter(&turn, client.Stderr, f.raw))
}

// exitAs ends as the program did. What it printed says enough, unless it was
// ended from outside.
func (inv *invocation) exitAs(ended client.RunState) error {
	r, why, reason := ended.Result, "", "nobody says why"
	if ended.Reason != nil {
		reason = *ended.Reason
	}
	if ended.Status == client.Cancelled {
		return fault.New(fault.Conflict, "run %s was cancelled: %s", ended.RunID, reason)
	}
	if r == nil {
		return fault.New(fault.Unavailable, "run %s came to no result: %s", ended.RunID, reason)
	}
	code := r.ExitCode
	switch {
	case r.TimedOut:
		code, why = exitTimeout, fmt.Sprintf("it was ended after its timeout of %d s", r.Timeout)
	case r.Step == "compile":
		why = "it could not be compiled"
	case r.Verdict == "oom":
		why = "it ran out of memory"
	case r.Verdict == "limit":
		why = "it went over a limit: " + r.Cause
	}
	if why != "" && !inv.json {
		_, _ = fmt.Fprintf(inv.Err, "aurea: %s\n", plain(why))
	}
	switch {
	case code == 0 && r.Success:
		return nil
	case code <= 0: // it was not the program that ended it
		code = ExitFailed
	}
	return quietError{programError(code)}
}

// programError is a program that ended with another code than 0.
type programError int

func (e programError) Error() string { return fmt.Sprintf("the program ended with %d", int(e)) }

// ExitCode is the program's own.
func (e programError) ExitCode() int { return int(e) }
