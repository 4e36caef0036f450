package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/spawn"
)

// hostProcess holds a process of the host by its pidfd, so that neither a
// signal nor a wait can ever meet another that was given the same number.
type hostProcess struct {
	pid  int
	file *os.File
	stop atomic.Bool
}

// openProcess finds the process that was written down, if it still lives.
func openProcess(p spawn.Process) (*hostProcess, error) {
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", p.PID, err)
	}
	h := &hostProcess{pid: p.PID, file: os.NewFile(uintptr(fd), "pidfd")}
	// The number was held from here on. Is it the one that we mean?
	now, err := spawn.FindProcess(p.PID)
	if err != nil || now.Start != p.Start || exited(fd) {
		h.close()
		return nil, fmt.Errorf("process %d has ended", p.PID)
	}
	return h, nil
}

// exited reports whether the process behind a pidfd has ended, also when
// nobody has waited for it.
func exited(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// wait returns true when the process has ended, false when interrupted.
func (h *hostProcess) wait() bool {
	conn, err := h.file.SyscallConn()
	if err != nil {
		return false
	}
	err = conn.Read(func(fd uintptr) bool { return exited(int(fd)) })
	return err == nil
}

// ended reports whether the process has ended, also where nobody has seen it.
func (h *hostProcess) ended() bool {
	conn, err := h.file.SyscallConn()
	if err != nil {
		return true
	}
	over := false
	err = conn.Control(func(fd uintptr) { over = exited(int(fd)) })
	return over || err != nil // closed: it was seen
}

// ending reports whether the process has ended, or is about to: one that was
// killed gives its memory back first, and for that while nobody is told.
func (h *hostProcess) ending() bool {
	if h.ended() {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(h.pid) + "/stat")
	return errors.Is(err, fs.ErrNotExist) || err == nil && exiting(stat)
}

// exiting reads from a process's line in /proc whether the kernel is ending it.
func exiting(stat []byte) bool {
	const flags, bit = 6, 0x4 // of the fields behind the name, which may hold anything
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= flags {
		return false
	}
	n, err := strconv.ParseUint(string(fields[flags]), 10, 64)
	return err == nil && n&bit != 0
}

// interrupt ends wait for good.
func (h *hostProcess) interrupt() {
	h.stop.Store(true)
	_ = h.file.SetReadDeadline(time.Unix(1, 0))
}

func (h *hostProcess) interrupted() bool { return h.stop.Load() }

func (h *hostProcess) kill() error {
	conn, err := h.file.SyscallConn()
	if err != nil {
		return err
	}
	var killErr error
	err = conn.Control(func(fd uintptr) {
		killErr = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0)
	})
	if errors.Is(killErr, unix.ESRCH) {
		killErr = nil
	}
	return errors.Join(err, killErr)
}

func (h *hostProcess) close() { _ = h.file.Close() }

// killAll kills every process of the sandbox in dir and waits for their ends. It
// returns those that their parents may not have waited for.
func (d *Driver) killAll(ctx context.Context, dir string) (dead []spawn.Process, err error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	made, madeErr := readMade(dir)
	r, err := readRecord(dir)
	if madeErr == nil && err == nil {
		if r.State.Boot != d.boot {
			return nil, nil // the machine has been off since
		}
		var below []spawn.Process
		if len(r.Groups) == 0 { // else the groups go only when all have ended
			below = descendants(made.Sentry.PID)
		}
		if err := killKnown(ctx, made.Sentry); err != nil {
			return nil, err
		}
		for _, p := range below {
			awaitReaped(p)
		}
		return []spawn.Process{made.Sentry}, nil
	}
	return killFound(ctx, dir)
}

// descendants returns the processes below one. They end with it, by the
// kernel's hand, a moment later.
func descendants(pid int) []spawn.Process {
	var found []spawn.Process
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is good
	for _, path := range lists {
		list, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range bytes.Fields(list) {
			child, err := strconv.Atoi(string(field))
			if err != nil {
				continue
			}
			if p, err := spawn.FindProcess(child); err == nil {
				found = append(found, p)
			}
			found = append(found, descendants(child)...)
		}
	}
	return found
}

func killKnown(ctx context.Context, p spawn.Process) error {
	h, err := openProcess(p)
	if err != nil {
		return nil //nolint:nilerr // it has ended
	}
	defer h.close()
	if err := h.kill(); err != nil {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	return h.waitUntil(ctx)
}

// awaitReaped waits until the parent of a process that has ended has waited for
// it, which is a matter of microseconds unless that parent is not ours and never
// does; what it would then leave is a number and nothing else.
func awaitReaped(p spawn.Process) {
	const most, longest = time.Second, 5 * time.Millisecond
	began := time.Now()
	for pause := 50 * time.Microsecond; time.Since(began) < most; pause = min(2*pause, longest) {
		if now, err := spawn.FindProcess(p.PID); err != nil || now.Start != p.Start {
			return
		}
		time.Sleep(pause)
	}
}

// waitUntil waits for the end of the process or of ctx.
func (h *hostProcess) waitUntil(ctx context.Context) error {
	stop := context.AfterFunc(ctx, h.interrupt)
	defer stop()
	if !h.wait() {
		return fault.New(fault.Unavailable, "wait for the sandbox's processes to end: %w", context.Cause(ctx))
	}
	return nil
}

// killFound kills the processes of a half-made sandbox, which were not written
// down: it looks through all processes of the machine. A spawner that was
// killed may have left a child that does not bear its own name yet, so it is
// content only when it has found none a few times in a row.
func killFound(ctx context.Context, dir string) (dead []spawn.Process, err error) {
	const enough, pause = 3, 20 * time.Millisecond
	for clean := 0; clean < enough; clean++ {
		found, err := find(dir)
		if err != nil {
			return dead, err
		}
		for _, p := range found {
			clean = -1
			if err := killKnown(ctx, p); err != nil {
				return dead, err
			}
		}
		dead = append(dead, found...)
		select {
		case <-ctx.Done():
			return dead, fault.New(fault.Unavailable, "look for the sandbox's processes: %w", context.Cause(ctx))
		case <-time.After(pause):
		}
	}
	return dead, nil
}

// find returns the processes that run our sentry with the sandbox's bundle.
func find(dir string) ([]spawn.Process, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	var found []spawn.Process
	for _, path := range paths {
		cmdline, err := os.ReadFile(path)
		if err != nil || !names(cmdline, dir) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		p, err := spawn.FindProcess(pid)
		if err != nil {
			continue // has just ended
		}
		found = append(found, p)
	}
	return found, nil
}

// names reports whether the arguments are those of a sandbox process with the
// given bundle.
func names(cmdline []byte, bundle string) bool {
	args := bytes.Split(cmdline, []byte{0})
	first := string(args[0])
	if first != "runsc-sandbox" {
		return false
	}
	return slices.ContainsFunc(args, func(arg []byte) bool {
		return string(arg) == bundle || string(arg) == "--bundle="+bundle
	})
}
