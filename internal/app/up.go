package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/aurea-dev/aurea/internal/cli"
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/service"
	"github.com/aurea-dev/aurea/internal/service/supervise"
)

// How long each role may take to stop, the worker's drain aside.
const (
	managerStopWithin = 15 * time.Second
	bridgeStopWithin  = 10 * time.Second
)

// roleWidth is the width of the longest name before a line of output.
const roleWidth = len("manager")

// Up runs manager, bridge and worker as processes of their own until ctx ends,
// and starts again what dies.
//
// The supervisor holds the listening sockets and hands them down, so that a
// client which comes while the manager is being started again waits a moment
// instead of being refused.
func Up(ctx context.Context, s cli.Start) error {
	cfg := s.Config
	out := supervise.NewOutput(s.Stderr, cfg.LogFormat == config.JSONLog, roleWidth)
	log := begin(cli.Start{Config: cfg, Stderr: lineWriter{out}})
	who, err := unprivileged()
	if err != nil {
		return err
	}
	if err := prepare(cfg, who); err != nil {
		return err
	}
	lock, err := supervise.TakeLock(filepath.Join(cfg.RunDir(), "up.lock"), "the data folder "+cfg.Data)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Unlock() }()
	sup := &supervisor{cfg: cfg, who: who, out: out, log: log}
	if err := sup.listen(ctx); err != nil {
		return err
	}
	defer sup.close()
	parts := sup.parts()
	return service.Group{
		Parts: parts, Logger: log, Hurry: s.Hurry,
		Ready: func() { sup.sayWhatToTry(s.Stdout) },
	}.Run(ctx)
}

// lineWriter writes the supervisor's own log between the lines of its
// children.
type lineWriter struct{ out *supervise.Output }

func (w lineWriter) Write(p []byte) (int, error) {
	w.out.Line("up", bytes.TrimRight(p, "\n"))
	return len(p), nil
}

// supervisor makes the children.
type supervisor struct {
	cfg     *config.Config
	who     *identity // whom the manager and the bridge run as; nil is ourselves
	out     *supervise.Output
	log     *slog.Logger
	manager *os.File // the listening sockets
	bridge  *os.File
}

// listen opens both sockets. Ports that were left to chance are written back,
// so that they stay the same over the life of all children.
func (sup *supervisor) listen(ctx context.Context) (err error) {
	if sup.manager, err = sup.bind(ctx, &sup.cfg.Port, "--port/PORT"); err != nil {
		return err
	}
	if sup.bridge, err = sup.bind(ctx, &sup.cfg.BridgePort, "--bridge-port/BRIDGE_PORT"); err != nil {
		_ = sup.manager.Close()
	}
	return err
}

// bindPatience is how long a port may still be held by children of a
// supervisor that was killed a moment ago; they are stopping.
const bindPatience = 5 * time.Second

func (sup *supervisor) bind(ctx context.Context, port *int, setting string) (*os.File, error) {
	address := net.JoinHostPort(sup.cfg.Host, fmt.Sprint(*port))
	deadline := time.Now().Add(bindPatience)
	for {
		ln, err := listen(ctx, address)
		switch {
		case err == nil:
			defer func() { _ = ln.Close() }()
			tcp, ok := ln.(*net.TCPListener)
			if !ok {
				return nil, fmt.Errorf("listen on %s: not a TCP socket", address)
			}
			if addr, ok := tcp.Addr().(*net.TCPAddr); ok {
				*port = addr.Port
			}
			f, err := tcp.File()
			if err != nil {
				return nil, fmt.Errorf("keep the socket of %s: %w", address, err)
			}
			return f, nil
		case !errors.Is(err, syscall.EADDRINUSE):
			return nil, err
		case time.Now().After(deadline):
			return nil, fault.New(fault.Conflict, "listen on %s: another program uses it; stop that one, or choose another port with %s", address, setting).WithCode("in_use")
		}
		t := time.NewTimer(50 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

func (sup *supervisor) close() {
	_ = sup.manager.Close()
	_ = sup.bridge.Close()
}

// parts are the children, in the order in which they start. They stop the
// other way round: the worker drains while the manager still listens to it.
func (sup *supervisor) parts() []service.Part {
	own := *sup.cfg
	own.ManagerURLs = []string{own.LocalURL(own.Port)}
	managerURL, bridgeURL := own.LocalURL(own.Port), own.LocalURL(own.BridgePort)
	ask := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

	worker := own
	worker.KeyFile = sup.keyFile(policy.Worker)
	bridge := own
	bridge.KeyFile, bridge.ListenFD = sup.keyFile(policy.Bridge), firstExtraFD
	manager := own
	manager.ListenFD = firstExtraFD
	drain := own.DrainTimeout + afterDrain
	return []service.Part{
		sup.part(child{
			role: config.Manager, cfg: &manager, socket: sup.manager, who: sup.who, stopWithin: managerStopWithin,
			ready: func(ctx context.Context) bool { return answers(ctx, ask, managerURL+"/ready", nil) },
		}),
		sup.part(child{
			role: config.Bridge, cfg: &bridge, socket: sup.bridge, who: sup.who, stopWithin: bridgeStopWithin,
			ready: func(ctx context.Context) bool { return answers(ctx, ask, bridgeURL+"/health", nil) },
		}),
		sup.part(child{
			role: config.Worker, cfg: &worker, stopWithin: drain, ready: sup.workerReady(ask, managerURL),
		}),
	}
}

// firstExtraFD is the number under which a child finds its socket.
const firstExtraFD = 3

// keyFile is the file of a key, where keys are asked for.
func (sup *supervisor) keyFile(kind policy.Kind) string {
	if sup.cfg.Loopback() {
		return ""
	}
	return keyFile(sup.cfg, kind)
}

// child is one role as a process.
type child struct {
	role       config.Role
	cfg        *config.Config
	socket     *os.File  // nil for a role that listens on none
	who        *identity // nil is ourselves
	stopWithin time.Duration
	ready      func(ctx context.Context) bool
}

func (sup *supervisor) part(c child) service.Part {
	ch := supervise.New(supervise.Spec{
		Name: string(c.role), Command: c.command, Ready: c.ready, StopWithin: c.stopWithin,
		// A wrong setting stays wrong, however often it is tried.
		Final:           func(code int) bool { return code == cli.ExitInvalid },
		NoNewPrivileges: c.who != nil,
		Output:          sup.out, Logger: sup.log,
	})
	return service.Part{Name: string(c.role), Service: ch, StopWithin: c.stopWithin + time.Second}
}

// command starts this same binary. Through /proc/self/exe it is found also by
// a user who may not enter the folder that it lies in, and after it was
// replaced on disk. The environment is made of what the role needs and nothing
// else.
func (c child) command() *exec.Cmd {
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"aurea", string(c.role)}, Dir: "/",
		Env: slices.Concat(config.Inherited(), c.cfg.Environ(c.role)),
	}
	if c.socket != nil {
		cmd.ExtraFiles = []*os.File{c.socket}
	}
	if c.who != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.who.uid, Gid: c.who.gid}}
		cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "HOME=") })
	}
	return cmd
}

// workerPatience is how long `up` waits for its worker before it says that it
// is up without one.
const workerPatience = 30 * time.Second

// workerReady asks the manager, because nothing dials into a worker.
func (sup *supervisor) workerReady(ask *http.Client, managerURL string) func(ctx context.Context) bool {
	var began time.Time
	return func(ctx context.Context) bool {
		if began.IsZero() {
			began = time.Now()
		}
		var health struct {
			SandboxAvailable bool `json:"sandbox_available"`
		}
		if answers(ctx, ask, managerURL+"/health", &health) && health.SandboxAvailable {
			return true
		}
		if time.Since(began) < workerPatience {
			return false
		}
		sup.log.Warn("the worker has not announced itself yet; jobs wait until it does")
		return true
	}
}

// answers reports whether a URL answers with 200, and reads the answer.
func answers(ctx context.Context, ask *http.Client, url string, into any) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	res, err := ask.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return false
	}
	return into == nil || json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(into) == nil
}

// sayWhatToTry tells people where to begin; programs get a line of log.
func (sup *supervisor) sayWhatToTry(w io.Writer) {
	cfg := sup.cfg
	api, bridge := cfg.LocalURL(cfg.Port), cfg.LocalURL(cfg.BridgePort)
	if cfg.LogFormat == config.JSONLog {
		sup.log.Info("up", "api", api, "bridge", bridge, "data", cfg.Data)
		return
	}
	var tls, server, keys, header string
	if cfg.Access.TLSCert != "" {
		tls = "  TLS     for other machines, by https on the same ports; these addresses are for this machine alone\n"
	}
	if api != "http://127.0.0.1:8000" {
		server = "  export AUREA_SERVER=" + api + "\n"
	}
	if !cfg.Loopback() {
		keys = "  export AUREA_KEY_FILE=" + keyFile(cfg, policy.Admin) + "\n"
		header = ` -H "Authorization: Bearer $(cat $AUREA_KEY_FILE)"`
	}
	_, _ = fmt.Fprintf(w, `
Aurea is up.
  API     %[1]s  (docs: %[1]s/docs)
  bridge  %[2]s
  data    %[3]s
%[7]s
Try, in another terminal:
%[4]s%[5]s  curl -X POST %[2]s/mcp/command -H 'Content-Type: application/json'%[6]s \
    -d '{"project_id": 1, "title": "Test PRD", "tasks": [{"role": "Employee", "payload": {"action": "create file"}}]}'
  aurea jobs ls
  aurea events --follow --after 0

Ctrl-C stops everything in order.

`, api, bridge, cfg.Data, server, keys, header, tls)
}

// plainNet takes out of a network error what was said before it.
func plainNet(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
