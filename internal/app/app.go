// Package app wires the parts together: it is the only importer of adapters,
// and each list of them is visible here (drivers.go, manager.go, worker.go,
// bridge.go). up.go starts all roles as processes of their own.
//
// It decides nothing: settings come checked from config, and what the parts do
// is theirs.
package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/aurea-dev/aurea/internal/cli"
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/httpapi"
	"github.com/aurea-dev/aurea/internal/service"
)

// Program is the program behind the commands.
func Program() cli.Program {
	return cli.Program{Up: Up, Manager: Manager, Worker: Worker, Bridge: Bridge, OpenAPI: httpapi.Spec, Images: Images, Builds: Builds, Once: Once, Doctor: Doctor, Diagnose: Diagnose, KillLeft: KillLeft, More: moreCommands}
}

// newLogger makes the one logger of a process.
func newLogger(cfg *config.Config, w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: cfg.LogLevel}
	switch f, isFile := w.(*os.File); {
	case cfg.LogFormat == config.JSONLog:
		return slog.New(slog.NewJSONHandler(w, opts))
	case isFile && term.IsTerminal(int(f.Fd())):
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: cfg.LogLevel, TimeFormat: time.TimeOnly}))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// begin makes the logger of a role and says what its settings left to say.
func begin(s cli.Start) *slog.Logger {
	collectLess()
	log := newLogger(s.Config, s.Stderr)
	for _, note := range s.Config.Notes() {
		log.Warn(note)
	}
	return log
}

// collectLess lets the heap grow further between collections. A role holds few
// megabytes and makes much that is short-lived, so with the runtime's own
// setting it would collect some twenty times a second. Above the limit it
// collects as often as it takes. Who sets GOGC or GOMEMLIMIT has the last word.
func collectLess() {
	const usual, percent, limit = 100, 400, 1 << 30
	if set := debug.SetGCPercent(percent); set != usual {
		debug.SetGCPercent(set)
	}
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(limit)
	}
}

// outlive keeps a process from dying of a write when whoever read its output
// has gone: a worker drains also after the death of its supervisor. The
// handler, unlike an ignored signal, is not inherited by what we start.
func outlive() (undo func()) {
	broken := make(chan os.Signal, 1) // never read: it is enough to be told
	signal.Notify(broken, syscall.SIGPIPE)
	return func() { signal.Stop(broken) }
}

// listener returns what opens a role's socket: the one that the supervisor
// handed down, or one of its own.
func listener(fd int, address string) func(context.Context) (net.Listener, error) {
	return func(ctx context.Context) (net.Listener, error) {
		if fd == 0 {
			return listen(ctx, address)
		}
		f := os.NewFile(uintptr(fd), "inherited socket")
		defer func() { _ = f.Close() }() // the listener has its own copy, which no child inherits
		ln, err := net.FileListener(f)
		if err != nil {
			return nil, fmt.Errorf("take over the socket of the supervisor: %w", err)
		}
		return ln, nil
	}
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, plainNet(err))
	}
	return ln, nil
}

// Bounds of every HTTP server. Bodies and answers are bounded by the doors,
// route by route, because streams last.
const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

func newServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// closing is a part that does nothing but close something in its turn.
func closing(name string, log *slog.Logger, closer func() error) service.Part {
	return service.Part{Name: name, Service: service.NewFunc(func(ctx context.Context, ready func()) error {
		ready()
		<-ctx.Done()
		if err := closer(); err != nil {
			log.Error("cannot close in good order", "part", name, "error", err)
		}
		return context.Cause(ctx)
	})}
}

// moreCommands are the commands that need the adapters.
func moreCommands() []*cobra.Command { return append(benchCommands(), databaseCommands()...) }
