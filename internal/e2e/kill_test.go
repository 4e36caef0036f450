package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sandboxes are the processes that are sandboxes of this pair.
func (p *pair) sandboxes() (pids []int) {
	for pid, args := range processes() {
		if len(args) > 0 && strings.HasPrefix(args[0], "runsc-sandbox") && strings.Contains(strings.Join(args, " "), p.folder) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// alive counts them.
func (p *pair) alive() int { return len(p.sandboxes()) }

// exits waits for the exits of processes on the host, as the kernel tells them.
type exits struct {
	fds  []unix.PollFd
	last chan time.Time // gets the moment of the last one
	err  error
}

// watchExits begins to watch all sandboxes of this pair.
func (p *pair) watchExits() *exits {
	p.t.Helper()
	x := &exits{last: make(chan time.Time, 1)}
	for _, pid := range p.sandboxes() {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			p.t.Fatal(err)
		}
		x.fds = append(x.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	go x.watch()
	return x
}

func (x *exits) watch() {
	defer close(x.last)
	open := slices.Clone(x.fds)
	for begun := time.Now(); len(open) > 0 && x.err == nil; {
		_, err := unix.Poll(open, int(time.Second.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			x.err = err
		}
		open = slices.DeleteFunc(open, func(f unix.PollFd) bool { return f.Revents&unix.POLLIN != 0 })
		if time.Since(begun) > patience {
			x.err = fmt.Errorf("%d of %d have not exited", len(open), len(x.fds))
		}
	}
	if x.err == nil {
		x.last <- time.Now()
	}
}

// await returns the moment of the last exit.
func (x *exits) await(t *testing.T) time.Time {
	t.Helper()
	last, all := <-x.last
	for _, f := range x.fds {
		_ = unix.Close(int(f.Fd))
	}
	if !all {
		t.Fatal(x.err)
	}
	return last
}

// TestTheKillSwitchOverRealSandboxes kills live sandboxes with jobs under way and
// others that wait, and then everything else: nothing starts afterwards, until the
// switch is re-armed. SANDBOXES=200 JOBS=1000 is what the design asks for.
func TestTheKillSwitchOverRealSandboxes(t *testing.T) {
	boxes, jobs := number(t, "SANDBOXES", 20), number(t, "JOBS", 50)
	p := newPair(t)
	if err := p.worker.kill(); err != nil {
		t.Fatal(err)
	}
	env := []string{"SANDBOX_MEMORY_LIMIT=64m", "AUREA_MEMORY=64g"}
	p.startWorker(env...)
	ids := p.fill(boxes)
	tasks := make([]map[string]any, jobs)
	for i := range tasks {
		tasks[i] = map[string]any{"title": fmt.Sprint(i), "payload": map[string]any{"action": "exec", "command": []string{"sleep", "600"}}}
	}
	if err := p.post(t.Context(), "/api/v1/prds", map[string]any{"title": "work", "tasks": tasks}, &struct{}{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "jobs run beside the sandboxes", func() (bool, string) {
		n := p.alive()
		return n > boxes, fmt.Sprint(n, " live")
	})

	seen := p.watchExits()
	began := time.Now()
	report := p.pull("", map[string]any{"level": "kill", "scope": "all", "reason": "fire"})
	answered := time.Since(began)
	if n := p.alive(); n != 0 {
		t.Errorf("%d live when the answer came", n)
	}
	last := seen.await(t)
	t.Logf("killed %d sandboxes, %d of them kept, beside %d jobs: the last of %d processes exited after %s, the answer came after %s",
		report.Killed, boxes, jobs, len(seen.fds), last.Sub(began).Round(time.Millisecond/10), answered.Round(time.Millisecond/10))
	if report.Killed < boxes || !report.Persisted || len(report.Unreachable) != 0 {
		t.Errorf("the kill switch answered %+v", report)
	}
	for _, kill := range []*process{p.manager, p.worker} {
		if err := kill.kill(); err != nil {
			t.Fatal(err)
		}
	}
	p.startManager()
	p.startWorker(env...)
	p.refuses()
	for _, id := range ids {
		var x struct{ State, Outcome, Reason string }
		eventually(t, "the sandbox has ended", func() (bool, string) {
			err := p.get(t.Context(), "/api/v1/sandboxes/"+id, &x)
			return err == nil && x.State == "FAILED" && x.Outcome == "killed" && strings.Contains(x.Reason, "fire"), fmt.Sprintf("%+v, %v", x, err)
		})
	}
	if n := p.alive(); n != 0 {
		t.Errorf("%d sandboxes live after the restart", n)
	}
	p.pull("/rearm", map[string]any{"reason": "it is out"})
	eventually(t, "a sandbox is made again", func() (bool, string) {
		err := p.post(t.Context(), "/api/v1/sandboxes", map[string]any{}, &box{})
		return err == nil, fmt.Sprint(err)
	})
	p.pull("", map[string]any{"level": "kill", "scope": "all", "reason": "the end"})
}

// fill makes so many sandboxes, with a command that runs in each.
func (p *pair) fill(n int) []string {
	p.t.Helper()
	ids, errs := make([]string, n), make([]error, n)
	turns := make(chan struct{}, 4)
	var group sync.WaitGroup
	eventually(p.t, "the worker serves", func() (bool, string) {
		var h struct {
			Available bool `json:"sandbox_available"`
		}
		err := p.get(p.t.Context(), "/health", &h)
		return err == nil && h.Available, fmt.Sprint(h, err)
	})
	for i := range n {
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			var x box
			errs[i] = p.post(p.t.Context(), "/api/v1/sandboxes", map[string]any{}, &x)
			if ids[i] = x.ID; errs[i] == nil {
				errs[i] = p.post(p.t.Context(), "/api/v1/sandboxes/"+x.ID+"/execs", map[string]any{"command": []string{"sleep", "600"}}, &command{})
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			p.t.Fatal(err)
		}
	}
	return ids
}

type stopReport struct {
	Killed      int
	Persisted   bool
	Unreachable []string
}

func (p *pair) pull(verb string, body map[string]any) (r stopReport) {
	p.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	a, err := p.ask(p.t.Context(), http.MethodPost, "/api/v1/kill-switch"+verb, text)
	if err == nil {
		err = a.into(http.StatusOK, &r)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

// refuses demands that nothing new begins.
func (p *pair) refuses() {
	p.t.Helper()
	for path, body := range map[string]string{
		"/api/v1/sandboxes": `{}`, "/run": `{"code":"1"}`, "/prds": `{"title":"x","tasks":[{"title":"x","payload":{"action":"exec","command":["true"]}}]}`,
	} {
		a, err := p.ask(p.t.Context(), http.MethodPost, path, []byte(body))
		if err != nil || a.status != http.StatusServiceUnavailable || !strings.Contains(a.String(), "KILL_SWITCH") {
			p.t.Errorf("%s under the kill switch: %s, %v", path, a, err)
		}
	}
}
