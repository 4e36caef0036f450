// Package cli is the door for people and scripts: the commands of the aurea
// binary. Commands that ask go through the public client and know nothing that
// another program could not know; commands that start something hand the
// checked settings to the Program that they were given.
//
// Every command has --json. Exit codes are listed at ExitCode.
package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/doctor"
	"github.com/aurea-dev/aurea/internal/image"
)

// version is set when the binary is built.
var version = "dev"

// Version is the version of the program.
func Version() string { return version }

// Program is what the commands start. The wiring fills it.
type Program struct {
	Up      func(ctx context.Context, s Start) error
	Manager func(ctx context.Context, s Start) error
	Worker  func(ctx context.Context, s Start) error
	Bridge  func(ctx context.Context, s Start) error
	OpenAPI func() ([]byte, error)
	// Doctor looks at this machine; Diagnose packs what support needs to know.
	Doctor   func(ctx context.Context, s Start) doctor.Report
	Diagnose func(ctx context.Context, s Start, logs []string, w io.Writer) error
	// KillLeft ends what a worker has left on this machine that does not run.
	KillLeft func(ctx context.Context, cfg *config.Config) error
	// Images opens the images of this machine.
	Images func(cfg *config.Config) (*image.Store, error)
	// Once runs a server for as long as use takes, which gets its address; nil
	// where none can be started.
	Once func(ctx context.Context, s Start, use func(ctx context.Context, server string) error) error
	// Builds makes images from Dockerfiles on this machine.
	Builds func(cfg *config.Config) (Builder, error)
	// More are commands from elsewhere, such as bench; nil is none.
	More func() []*cobra.Command
}

// Start is what a role is started with.
type Start struct {
	Config  *config.Config
	Version string
	Stdout  io.Writer
	Stderr  io.Writer
	// Hurry is closed when somebody asks a second time for the stop.
	Hurry <-chan struct{}
}

// Streams are the standard streams of a run.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// StandardStreams are those of the process.
func StandardStreams() Streams { return Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr} }

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

// sameSignal is how close together two signals are one: a terminal and a
// wrapper such as timeout or make may each pass on the same Ctrl-C.
const sameSignal = 500 * time.Millisecond

// Main runs a command line and returns the exit code. The first SIGINT or
// SIGTERM asks the command to end, the second to hurry, the third ends the
// process.
func Main(p Program, args []string, streams Streams) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	hurry, done := make(chan struct{}), make(chan struct{})
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	var watch sync.WaitGroup
	watch.Go(func() {
		var last time.Time
		for n := 0; ; {
			select {
			case <-signals:
			case <-done:
				return
			}
			if time.Since(last) < sameSignal {
				continue
			}
			last = time.Now()
			switch n++; n {
			case 1:
				cancel(errInterrupted)
			case 2:
				close(hurry)
			default:
				os.Exit(ExitInterrupted)
			}
		}
	})
	defer func() { signal.Stop(signals); close(done); watch.Wait() }()
	return Run(ctx, p, args, streams, hurry)
}

// Run is Main without signals.
func Run(ctx context.Context, p Program, args []string, streams Streams, hurry <-chan struct{}) int {
	inv := &invocation{program: p, Streams: streams, hurry: hurry}
	root := inv.root() //nolint:contextcheck // each command gets its context when it runs
	root.SetArgs(args)
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	err := root.ExecuteContext(ctx)
	if err != nil {
		inv.printError(err)
	}
	return ExitCode(err)
}

// invocation is one run of a command line.
type invocation struct {
	Streams
	program Program
	hurry   <-chan struct{}

	json bool   // --json
	file string // --config
}

func (inv *invocation) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "aurea",
		Short:         "A computer of its own for every agent and every piece of untrusted code",
		Long:          "Aurea gives every agent, and every piece of untrusted code, a computer of its own.\n\n`aurea up` starts everything on this machine and says what to try.\n\n" + exitHelp(),
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, "%s", err) })
	root.PersistentFlags().BoolVar(&inv.json, "json", false, "print JSON; one object per line where the answer is a stream")
	root.PersistentFlags().StringVar(&inv.file, "config", "", "settings file (AUREA_CONFIG)")
	root.AddCommand(inv.upCommand(), inv.roleCommand(config.Manager, "Start a manager alone", inv.program.Manager),
		inv.roleCommand(config.Worker, "Start a worker alone", inv.program.Worker),
		inv.roleCommand(config.Bridge, "Start a bridge alone", inv.program.Bridge),
		inv.runCommand(), inv.sandboxCommand(), inv.fleetCommand(), inv.languagesCommand(), inv.poolCommand(), inv.prdCommand(), inv.jobsCommand(), inv.eventsCommand(), inv.auditCommand(), inv.gcCommand(), inv.killSwitchCommand(), inv.imageCommand(), inv.configCommand(), inv.healthCommand(), inv.doctorCommand(), inv.diagnoseCommand(),
		inv.versionCommand(), inv.openAPICommand())
	root.AddCommand(inv.keyCommand())
	root.AddCommand(inv.pauseCommands()...)
	if inv.program.More != nil {
		root.AddCommand(inv.program.More()...)
	}
	return root
}

// group is a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage(cmd, "say what to do: %s", strings.Join(verbs(cmd), ", "))
		},
	}
	cmd.AddCommand(commands...)
	return cmd
}

func verbs(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}
