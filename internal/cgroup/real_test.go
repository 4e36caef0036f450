package cgroup_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/aurea-dev/aurea/internal/cgroup"
)

// host opens the real tree, under an owner of its own. At the end nothing of it
// may be left.
func host(t *testing.T) *cgroup.Host {
	t.Helper()
	const reason = "control groups need root and a kernel that has them; this run leaves their tests out"
	var id [6]byte
	_, _ = rand.Read(id[:])
	owner := "test" + hex.EncodeToString(id[:])
	h, err := cgroup.Open("/", owner)
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 || len(h.Lacks()) > 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal(reason, h.Lacks())
		}
		t.Skip(reason)
	}
	t.Cleanup(func() {
		h.Close()
		_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && d.Name() == owner {
				t.Errorf("%s is left", path)
			}
			return nil
		})
	})
	return h
}

// start starts a shell in the group as a sentry is started: cloned into it
// where that can be, and joining the rest before anything else.
func start(t *testing.T, g *cgroup.Group, script string) *exec.Cmd {
	t.Helper()
	join := g.Join()
	for _, file := range slices.Backward(join.Files) {
		script = fmt.Sprintf("echo 0 >'%s' || exit 99\n%s", file, script)
	}
	cmd := exec.Command("sh", "-c", script)
	if join.Into != "" {
		d, err := os.Open(join.Into)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(d.Fd())}
	}
	return cmd
}

func TestGroupHoldsAndMeasures(t *testing.T) {
	t.Parallel()
	h := host(t)
	g, err := h.Make("a", cgroup.Limits{MilliCPU: 900, Memory: 64 << 20, Processes: 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Remove(context.Background()); err != nil {
			t.Error(err)
		}
	})
	cmd := start(t, g, "echo up; read x")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 3)
	if _, err := out.Read(line); err != nil || string(line) != "up\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := g.Holds(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	if err := g.Holds(os.Getpid()); err == nil {
		t.Error("it holds us too")
	}
	u, err := g.Usage()
	if err != nil || u.CPU <= 0 || u.Memory <= 0 || u.PeakMemory <= 0 || u.Processes != 1 {
		t.Errorf("usage %+v, %v", u, err)
	}
	if err := g.Freeze(context.Background()); err != nil {
		t.Error(err)
	}
	if err := g.Thaw(context.Background()); err != nil {
		t.Error(err)
	}
	in.Close()
	_ = cmd.Wait() // its read has met the end

	// The group is found again by where it is.
	again, err := h.Find("a", g.Paths())
	if err != nil || len(again.Paths()) != len(g.Paths()) {
		t.Errorf("%v, %v", again, err)
	}
}

func TestMemoryLimitKillsAndIsCounted(t *testing.T) {
	t.Parallel()
	h := host(t)
	g, err := h.Make("a", cgroup.Limits{Memory: 32 << 20})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := g.WatchOOM()
	if err != nil {
		t.Fatal(err)
	}
	if watch != nil { // not on version 2
		defer func() {
			watch.Close()
			if watch.Wait() {
				t.Error("a closed watch saw something")
			}
		}()
	}
	// tail keeps what has no line in it.
	out, err := start(t, g, "head -c 200000000 /dev/zero | tail | wc -c").CombinedOutput()
	if strings.TrimSpace(string(out)) == "200000000" {
		t.Errorf("it had 200 MB: %q, %v", out, err)
	}
	if n, err := g.OOMKills(); err != nil || n < 1 {
		t.Errorf("oom kills: %d, %v", n, err)
	}
	if watch != nil && !watch.Wait() {
		t.Error("the watch saw nothing")
	}
	if u, err := g.Usage(); err != nil || u.PeakMemory > 33<<20 || u.PeakMemory < 16<<20 {
		t.Errorf("usage %+v, %v", u, err)
	}
	if err := g.Remove(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestProcessLimitIsCounted(t *testing.T) {
	t.Parallel()
	h := host(t)
	g, err := h.Make("a", cgroup.Limits{Processes: 4})
	if err != nil {
		t.Fatal(err)
	}
	out, _ := start(t, g, "for i in 1 2 3 4 5 6 7 8; do sleep 1000 >/dev/null 2>&1 & done").CombinedOutput()
	if n, err := g.Refused(); err != nil || n < 1 {
		t.Errorf("refused: %d, %v (%q)", n, err, out)
	}
	if err := g.Remove(context.Background()); err != nil {
		t.Error(err)
	}
}

// Processes that fork faster than they are killed are gone after Remove.
func TestRemoveEndsWhatIsInside(t *testing.T) {
	t.Parallel()
	h := host(t)
	g, err := h.Make("a", cgroup.Limits{Processes: 50})
	if err != nil {
		t.Fatal(err)
	}
	cmd := start(t, g, `f() { (sh -c 'sleep 1000' & f) & } ; f; f; echo up; sleep 1000`)
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 3)
	_, _ = out.Read(line)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // killed
	}()
	if err := g.Remove(context.Background()); err != nil {
		t.Error(err)
	}
	<-ended
	if err := g.Remove(context.Background()); err != nil {
		t.Errorf("again: %v", err)
	}
	if _, err := g.Usage(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("usage of what is gone: %v", err)
	}
	if names, err := h.List(); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
}
