package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/cli"
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/image"
	"github.com/aurea-dev/aurea/internal/service"
	"github.com/aurea-dev/aurea/internal/service/supervise"
)

// onceSlots bounds how many commands on one data folder may have a server of
// their own at the same time.
const onceSlots = 64

// errUsed is why a server for one use ends.
var errUsed = errors.New("it was for one use")

// Once runs a manager and a worker for as long as use takes, in a folder of
// their own that goes with them. Images are those of the data folder, so that
// nothing is copied again. use gets the address of the manager.
//
// Both are children that end when this process does, however it ends, and end
// their sandboxes. What a killed process leaves is its folder; the next takes
// that one over, sweeps it as every worker sweeps its own, and removes it.
func Once(ctx context.Context, s cli.Start, use func(ctx context.Context, server string) error) (err error) {
	slot, err := takeSlot(filepath.Join(s.Config.Data, "once"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, slot.giveBack()) }()
	cfg := onceConfig(s.Config, slot.folder)
	who, err := unprivileged()
	if err != nil {
		return err
	}
	if err := prepare(cfg, who); err != nil {
		return err
	}
	sayWhatTakesLong(cfg, s)
	said := &lastLines{}
	out := supervise.NewOutput(said, false, roleWidth)
	log := newLogger(cfg, lineWriter{out})
	sup := &supervisor{cfg: cfg, who: who, out: out, log: log}
	if sup.manager, err = sup.bind(ctx, &cfg.Port, "--port/PORT"); err != nil {
		return err
	}
	defer func() { _ = sup.manager.Close() }()

	return sup.serve(ctx, s.Hurry, said, use)
}

// serve runs the parts until use returns, one of them dies, or ctx ends before
// they are ready: after that its end is for use to see to.
func (sup *supervisor) serve(ctx context.Context, hurry <-chan struct{}, said *lastLines, use func(ctx context.Context, server string) error) error {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	giveUp := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	during, stopUse := context.WithCancelCause(ctx)
	defer stopUse(nil)
	var using sync.WaitGroup
	var used error
	ready := false
	err := service.Group{
		Parts: sup.onceParts(end), Logger: sup.log, Hurry: hurry,
		Ready: func() {
			if ready = giveUp(); ready {
				using.Go(func() {
					used = use(during, sup.cfg.LocalURL(sup.cfg.Port))
					end(errUsed)
				})
			}
		},
	}.Run(life)
	stopUse(fault.New(fault.Unavailable, "the server of this run ended: %s", said.text()))
	using.Wait()
	if ready {
		return used
	}
	if cause := context.Cause(life); cause != nil {
		return fmt.Errorf("start a server for this run: %w", cause)
	}
	return fault.New(fault.Unavailable, "start a server for this run: %w: %s", err, said.text())
}

// onceConfig is how such a server differs from one that stays.
func onceConfig(given *config.Config, folder string) *config.Config {
	cfg := *given
	cfg.Images = given.ImageDir()
	cfg.Data, cfg.SandboxBase = folder, filepath.Join(folder, "sandbox")
	cfg.Host, cfg.Port, cfg.HostNames, cfg.Origins = "127.0.0.1", 0, nil, nil
	cfg.DatabaseURL, cfg.Blobs = config.Secret(""), ""
	cfg.WorkerID, cfg.WorkerRole, cfg.WorkerModels, cfg.Roles = "once", "Employee", nil, nil
	cfg.Concurrency, cfg.DrainTimeout, cfg.OnStop = 1, time.Millisecond, config.EndSandboxes
	cfg.Pool, cfg.PoolMax = nil, 0 // one run needs no sandbox that waits for another
	cfg.LogFormat, cfg.TraceEndpoint = config.TextLog, ""
	return &cfg
}

// onceParts start side by side: the worker's first calls wait in the socket
// until the manager takes them.
func (sup *supervisor) onceParts(fail func(error)) []service.Part {
	own := *sup.cfg
	own.ManagerURLs = []string{own.LocalURL(own.Port)}
	worker, manager := own, own
	manager.ListenFD = firstExtraFD
	ask := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return []service.Part{
		sup.part(child{role: config.Manager, cfg: &manager, socket: sup.manager, who: sup.who, stopWithin: managerStopWithin}),
		sup.part(child{role: config.Worker, cfg: &worker, stopWithin: afterDrain, ready: sandboxesAt(ask, own.LocalURL(own.Port), fail)}),
	}
}

// sandboxesAt asks a manager whether sandboxes can be made. A driver that was
// not proved does not get better by waiting.
func sandboxesAt(ask *http.Client, managerURL string, fail func(error)) func(ctx context.Context) bool {
	return func(ctx context.Context) bool {
		var health struct {
			SandboxAvailable bool `json:"sandbox_available"`
			Drivers          []struct {
				Name, Status, Reason string
			} `json:"driver_status"`
		}
		if !answers(ctx, ask, managerURL+"/health", &health) {
			return false
		}
		for _, d := range health.Drivers {
			if d.Status == "degraded" {
				fail(fault.New(fault.Unavailable, "the driver %s is not served here: %s", d.Name, d.Reason))
				return false
			}
		}
		return health.SandboxAvailable
	}
}

// sayWhatTakesLong prepares a person for the first time.
func sayWhatTakesLong(cfg *config.Config, s cli.Start) {
	if cfg.Driver != "gvisor" {
		return
	}
	store, err := image.Open(imageConfig(cfg, nil))
	if err != nil || store.DefaultName() != image.HostName {
		return
	}
	if _, err := store.Find(image.HostName); fault.Is(err, fault.NotFound) {
		_, _ = fmt.Fprintln(s.Stderr, "aurea: taking an image of this machine's programs first; this happens once")
	}
}

// slot is the folder of one such server.
type slot struct {
	folder string
	lock   *supervise.Lock
}

// takeSlot takes a folder that nobody uses: rather one that somebody left than
// a new one, so that what was left is seen to.
func takeSlot(base string) (*slot, error) {
	if err := os.MkdirAll(base, 0o711); err != nil {
		return nil, fmt.Errorf("make a folder for one run: %w", err)
	}
	names := make([]string, onceSlots)
	for i := range names {
		names[i] = fmt.Sprintf("%02d", i)
	}
	left := func(name string) bool {
		_, err := os.Lstat(filepath.Join(base, name))
		return err == nil
	}
	slices.SortStableFunc(names, func(a, b string) int {
		switch l, r := left(a), left(b); {
		case l && !r:
			return -1
		case r && !l:
			return 1
		}
		return 0
	})
	for _, name := range names {
		lock, err := supervise.TakeLock(filepath.Join(base, name+".lock"), "the folder of a run")
		if fault.Is(err, fault.Conflict) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s := &slot{folder: filepath.Join(base, name), lock: lock}
		if s.lives() {
			_ = lock.Unlock()
			continue
		}
		// The manager of whoever was killed has nothing to say to us.
		if err := os.RemoveAll(filepath.Join(s.folder, "manager")); err != nil {
			return nil, errors.Join(fmt.Errorf("clear what an earlier run left: %w", err), lock.Unlock())
		}
		return s, nil
	}
	return nil, fault.New(fault.Exhausted, "%d runs have a server of their own; start one for all with `aurea up`", onceSlots)
}

// lives reports whether children of somebody who was killed are still ending.
func (s *slot) lives() bool {
	for _, name := range []string{"manager/manager.lock", "sandbox/worker.lock"} {
		path := filepath.Join(s.folder, name)
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		lock, err := supervise.TakeLock(path, "the folder of a run")
		if err != nil {
			return true
		}
		_ = lock.Unlock()
	}
	return false
}

// giveBack removes the folder.
func (s *slot) giveBack() error {
	err := os.RemoveAll(s.folder)
	return errors.Join(err, s.lock.Unlock())
}

// lastLines keeps the end of what was said, for the case that it is needed.
type lastLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *lastLines) Write(p []byte) (int, error) {
	const enough = 5
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(p) {
		l.lines = append(l.lines, strings.TrimSpace(string(line)))
	}
	l.lines = l.lines[max(0, len(l.lines)-enough):]
	return len(p), nil
}

func (l *lastLines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, " / ")
}
