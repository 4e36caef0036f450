package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// Kills is how long it takes to stop everything.
type Kills struct {
	Rows []KillRow `json:"rows"`
}

// KillRow is one number of sandboxes, each with a command that runs.
type KillRow struct {
	Sandboxes int `json:"sandboxes"`
	Processes int `json:"processes"` // of the host, that all of them are
	// Freeze, Unfreeze and Kill are from the request to its answer, Dead is from
	// the request to kill to the end of the last process, seen on the host.
	Freeze   time.Duration `json:"freeze_ns"`
	Unfreeze time.Duration `json:"unfreeze_ns"`
	Kill     time.Duration `json:"kill_ns"`
	Dead     time.Duration `json:"dead_ns"`
}

// Kill measures the kill switch with each number of sandboxes.
func (b *Bench) Kill(ctx context.Context, s *Server, sizes []int) (k Kills, err error) {
	for _, n := range sizes {
		b.Progress("%d sandboxes", n)
		row, err := s.killOf(ctx, n)
		if err != nil {
			return Kills{}, fmt.Errorf("%d sandboxes: %w", n, err)
		}
		k.Rows = append(k.Rows, row)
	}
	return k, nil
}

func (s *Server) killOf(ctx context.Context, n int) (KillRow, error) {
	if err := s.fill(ctx, n); err != nil {
		return KillRow{}, err
	}
	row := KillRow{Sandboxes: n}
	var err error
	if row.Freeze, err = s.pull(ctx, "", `{"level":"freeze","scope":"all","reason":"bench"}`); err != nil {
		return row, err
	}
	if row.Unfreeze, err = s.pull(ctx, "/unfreeze", `{"reason":"bench"}`); err != nil {
		return row, err
	}
	watched, err := s.watchAll()
	if err != nil {
		return row, err
	}
	defer func() { _ = watched.close() }()
	row.Processes = len(watched.fds)
	dead := make(chan time.Time, 1)
	go func() { dead <- watched.wait() }()
	began := time.Now()
	if row.Kill, err = s.pull(ctx, "", `{"level":"kill","scope":"all","reason":"bench"}`); err != nil {
		return row, err
	}
	select {
	case at := <-dead:
		row.Dead = at.Sub(began)
	case <-time.After(time.Minute):
		return row, errors.New("not all have ended within a minute")
	}
	_, err = s.pull(ctx, "/rearm", `{"reason":"bench"}`)
	return row, err
}

// fill makes so many sandboxes, with a command that runs in each.
func (s *Server) fill(ctx context.Context, n int) error {
	const atATime = 4
	var group sync.WaitGroup
	turns, errs := make(chan struct{}, atATime), make([]error, n)
	for i := range n {
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			id, err := s.create(ctx)
			if err == nil {
				err = s.post(ctx, "/api/v1/sandboxes/"+id+"/execs", `{"command":["sleep","3600"],"timeout":3600}`, nil)
			}
			errs[i] = err
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// pull pulls the switch and returns how long the answer took.
func (s *Server) pull(ctx context.Context, verb, body string) (time.Duration, error) {
	var answer struct {
		Persisted bool
		Failed    int
	}
	began := time.Now()
	err := s.post(ctx, "/api/v1/kill-switch"+verb, body, &answer)
	took := time.Since(began)
	if err == nil && (!answer.Persisted || answer.Failed > 0) {
		err = fmt.Errorf("the kill switch answered %+v", answer)
	}
	return took, err
}

// watched are processes that are waited for. To look must not slow down what is
// looked at, so one small file is read of each process, and only those that end
// are looked at again: each name below /proc that was looked up makes the end of
// its process dearer for the kernel, and a list of all of them at each end made
// the end of 200 sandboxes take half as long again.
type watched struct {
	epoll int
	fds   []int
}

// watchAll holds every process of this server's sandboxes, with what hangs on it.
func (s *Server) watchAll() (*watched, error) {
	parents, err := parents()
	if err != nil {
		return nil, err
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch processes: %w", err)
	}
	w := &watched{epoll: epoll}
	roots := map[int]bool{}
	for pid := range parents {
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && bytes.HasPrefix(line, []byte("runsc-sandbox")) && bytes.Contains(line, []byte(s.Data)) {
			roots[pid] = true
		}
	}
	for pid := range parents {
		for p := pid; p > 1; p = parents[p] {
			if !roots[p] {
				continue
			}
			if err := w.hold(pid); err != nil {
				return nil, errors.Join(err, w.close())
			}
			break
		}
	}
	if len(w.fds) == 0 {
		return nil, errors.Join(errors.New("no process of a sandbox was found"), w.close())
	}
	return w, nil
}

// parents are all processes, each with its parent.
func parents() (map[int]int, error) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all := map[int]int{}
	for _, n := range names {
		pid, err := strconv.Atoi(n.Name())
		if err != nil {
			continue // no process
		}
		text, err := os.ReadFile("/proc/" + n.Name() + "/stat")
		if err != nil {
			continue // it has just ended
		}
		// What is in brackets is the process's own word.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(fields) < 2 {
			continue
		}
		if all[pid], err = strconv.Atoi(string(fields[1])); err != nil {
			return nil, fmt.Errorf("read the parent of a process: %w", err)
		}
	}
	return all, nil
}

// hold takes in a process, unless it has just ended.
func (w *watched) hold(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil //nolint:nilerr // it has just ended
	}
	w.fds = append(w.fds, fd)
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)}
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("watch a process: %w", err)
	}
	return nil
}

// wait returns when the last of them has ended.
func (w *watched) wait() time.Time {
	events := make([]unix.EpollEvent, 64)
	for left := len(w.fds); left > 0; {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if err != nil {
			continue // a signal came in between
		}
		left -= n
	}
	return time.Now()
}

func (w *watched) close() error {
	for _, fd := range w.fds {
		_ = unix.Close(fd)
	}
	return unix.Close(w.epoll)
}

// Print writes the result as a person reads it.
func (k Kills) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "sandboxes\tprocesses\tfreeze\tunfreeze\tkill, last exit\tkill, answered\t")
	for _, r := range k.Rows {
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t\n", r.Sandboxes, r.Processes, round(r.Freeze), round(r.Unfreeze), round(r.Dead), round(r.Kill))
	}
	return t.Flush()
}
