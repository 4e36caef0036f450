package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	defer watched.close()
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

// watched are processes that are waited for.
type watched struct{ fds []unix.PollFd }

// watchAll holds every process of this server's sandboxes, with what hangs on it.
func (s *Server) watchAll() (*watched, error) {
	w := &watched{}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is good
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(line, []byte("runsc-sandbox")) || !bytes.Contains(line, []byte(s.Data)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		for _, p := range append(below(pid), pid) {
			fd, err := unix.PidfdOpen(p, 0)
			if err != nil {
				continue // it has just ended
			}
			w.fds = append(w.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
	}
	if len(w.fds) == 0 {
		return nil, errors.New("no process of a sandbox was found")
	}
	return w, nil
}

// below are the processes below one.
func below(pid int) (all []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is good
	for _, path := range lists {
		list, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range bytes.Fields(list) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				all = append(append(all, child), below(child)...)
			}
		}
	}
	return all
}

// wait returns when the last of them has ended.
func (w *watched) wait() time.Time {
	left := append([]unix.PollFd(nil), w.fds...)
	for len(left) > 0 {
		if _, err := unix.Poll(left, -1); err != nil {
			continue // a signal came in between
		}
		open := left[:0]
		for _, fd := range left {
			if fd.Revents == 0 {
				open = append(open, fd)
			}
		}
		left = open
	}
	return time.Now()
}

func (w *watched) close() {
	for _, fd := range w.fds {
		_ = unix.Close(int(fd.Fd))
	}
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
