// Package bench measures Aurea as its users meet it: real processes of this
// binary, over HTTP on loopback, with a disk that is synced. It prints rates
// and ratios and asserts nothing.
//
// It is a client like any other: it knows the doors, and no adapter. What must
// be prepared behind them (a database with a million events) is handed in.
package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Bench is one run of measurements.
type Bench struct {
	// Binary is the program to measure: this one.
	Binary string
	// Seed fills a new data folder, or a new database of the store that is named,
	// with n events of ended jobs. It returns the variables by which a manager
	// finds it.
	Seed func(ctx context.Context, store, data string, n int) (env []string, err error)
	// Log gets the output of the processes.
	Log io.Writer
	// Progress is told what is being done.
	Progress func(format string, args ...any)
}

// rig is a manager and a worker, as processes, on a data folder of their own.
type rig struct {
	url    string
	procs  []*process
	store  string
	events int // of its history
}

type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// start starts a process of the binary with just the environment given.
func (b *Bench) start(role string, env ...string) (*process, error) {
	cmd := exec.Command(b.Binary, role)
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/nonexistent", "LOG_LEVEL=warn"}, env...)
	cmd.Stdout, cmd.Stderr = b.Log, b.Log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() { defer close(p.done); _ = cmd.Wait() }()
	return p, nil
}

// stop asks, waits, and then insists.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// setUp starts a manager over data, and a worker of it. Each gets variables of
// its own besides those by which they find each other.
func (b *Bench) setUp(ctx context.Context, data string, forManager, forWorker []string) (_ *rig, err error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	r := &rig{url: "http://127.0.0.1:" + strconv.Itoa(port)}
	defer func() {
		if err != nil {
			r.tearDown()
		}
	}()
	manager, err := b.start("manager", append([]string{"AUREA_DATA=" + data, "HOST=127.0.0.1", "PORT=" + strconv.Itoa(port)}, forManager...)...)
	if err != nil {
		return nil, err
	}
	r.procs = append(r.procs, manager)
	if err := r.await(ctx, "/ready", manager); err != nil {
		return nil, err
	}
	worker, err := b.start("worker", append([]string{
		"MANAGER_URL=" + r.url, "WORKER_ID=bench", "AUREA_DATA=" + data, "SANDBOX_BASE=" + filepath.Join(data, "sandbox"),
	}, forWorker...)...)
	if err != nil {
		return nil, err
	}
	r.procs = append(r.procs, worker)
	return r, nil
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// cpu returns the processor time that each process has used so far.
func (r *rig) cpu() []time.Duration {
	used := make([]time.Duration, len(r.procs))
	for i, p := range r.procs {
		used[i] = cpuOf(p.cmd.Process.Pid)
	}
	return used
}

// cpuOf reads the processor time of a process; of one that is gone it is 0.
func cpuOf(pid int) time.Duration {
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The name in brackets may hold anything, so count from its end: the state
	// comes first, user and system time 11 and 12 fields later.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	var sum time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0
		}
		sum += time.Duration(n) * tick
	}
	return sum
}

// tearDown stops what setUp started, the worker first.
func (r *rig) tearDown() {
	for _, p := range slices.Backward(r.procs) {
		p.stop()
	}
}

// await polls a path until it answers 200.
func (r *rig) await(ctx context.Context, path string, p *process) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 4000 {
		if _, err := r.get(ctx, path, nil); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.done:
			return errors.New("the manager ended instead of starting; run with --verbose to see why")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return errors.New("the manager did not become ready within 20 s")
}

// together has so many clients do something at the same time, and returns one
// of the failures when all are done.
func together(clients int, do func() error) error {
	failed := make(chan error, clients)
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			if err := do(); err != nil {
				failed <- err
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil //nolint:errcheck,forcetypeassert // a TCP listener has a TCP address
}

// folder makes a folder for data below another that is removed by the returned
// func; below "" is in the folder for temporary files.
func folder(below string) (string, func(), error) {
	d, err := os.MkdirTemp(below, "aurea-bench-")
	if err != nil {
		return "", nil, fmt.Errorf("make data folder: %w", err)
	}
	return d, func() { _ = os.RemoveAll(d) }, nil
}

// percentile returns the p-th percentile of ds, which it sorts.
func percentile(ds []time.Duration, p float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	return ds[min(int(p/100*float64(len(ds))), len(ds)-1)]
}
