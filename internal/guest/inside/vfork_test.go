package inside

import (
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// vforked starts a program as nobody and returns what it says, and how it ended.
func vforked(t *testing.T, dir, path string, args ...string) (said string, status unix.WaitStatus, err error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	null, err := openNull()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	pidfd := -1
	b := &birth{}
	pid, err := (&trips{}).vfork(path, args, &syscall.ProcAttr{
		Dir: dir, Env: []string{"A=b c", "PATH=/usr/bin:/bin"}, Files: []uintptr{uintptr(null), w.Fd(), w.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, PidFD: &pidfd},
	}, b)
	w.Close()
	if b.number() != pid {
		t.Errorf("%d was told, and is %d", b.number(), pid)
	}
	if err != nil {
		if pid > 0 {
			collectChild(pid)
		}
		return "", 0, err
	}
	defer unix.Close(pidfd)
	all, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		if _, err = unix.Poll(fds, -1); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		t.Errorf("wait by the descriptor: %v", err)
	}
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
		t.Fatal(err)
	}
	return string(all), status, nil
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("becomes another user, which needs root")
	}
}

func TestVforkStartsAProgram(t *testing.T) {
	needsRoot(t)
	said, status, err := vforked(t, "/usr", "/bin/sh", "sh", "-c", `pwd; id -u; id -g; id -G; echo "$A"; ps -o sid= $$ | grep -cw $$; cat; exit 7`)
	if err != nil {
		t.Fatal(err)
	}
	if want := "/usr\n65534\n65534\n65534\nb c\n1\n"; said != want || status.ExitStatus() != 7 {
		t.Errorf("said %q and ended with %d, want %q and 7", said, status.ExitStatus(), want)
	}
}

func TestVforkLeavesNoSignalBehind(t *testing.T) {
	needsRoot(t)
	said, _, err := vforked(t, "/", "/bin/cat", "cat", "/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(said) {
		name, set, _ := strings.Cut(strings.TrimSpace(line), ":")
		if (name == "SigBlk" || name == "SigCgt") && strings.Trim(set, "\t0") != "" {
			t.Errorf("the program was started with %q", line)
		}
	}
}

func TestVforkSaysWhatIsWrong(t *testing.T) {
	needsRoot(t)
	plain := t.TempDir() + "/plain"
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		dir, path string
		want      error
	}{
		"no program":        {"/", "/bin/no-such-program", unix.ENOENT},
		"no folder":         {"/no/such/folder", "/bin/true", errNoFolder},
		"a file for folder": {"/etc/passwd", "/bin/true", errNoFolder},
		"not executable":    {"/", plain, unix.EACCES},
		"a zero in it":      {"/", "/bin/tr\x00ue", unix.EINVAL},
		"no such name":      {"/a\x00b", "/bin/true", errNoFolder},
		"too long a name":   {"/" + strings.Repeat("x", 300), "/bin/true", errNoFolder},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := vforked(t, tc.dir, tc.path, "x"); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
	if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); !errors.Is(err, unix.ECHILD) {
		t.Errorf("a child that gave up was left: %v", err)
	}
}

// A child runs in its parent's memory, while the parent's other threads move and
// free what they like.
func TestVforkBesideACollector(t *testing.T) {
	needsRoot(t)
	stop := make(chan struct{})
	var churning, working sync.WaitGroup
	churning.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = make([]byte, 1<<20)
				runtime.GC()
			}
		}
	})
	for range 4 {
		working.Go(func() {
			for range 25 {
				said, status, err := vforked(t, "/", "/bin/echo", "echo", "a", strings.Repeat("b", 2000))
				if err != nil || status.ExitStatus() != 0 || said != "a "+strings.Repeat("b", 2000)+"\n" {
					t.Errorf("said %d bytes, %v, %v", len(said), status, err)
					return
				}
			}
		})
	}
	working.Wait()
	close(stop)
	churning.Wait()
}

func TestGroupsAreTakenAgain(t *testing.T) {
	t.Parallel()
	g := &groups{}
	attr := &syscall.SysProcAttr{CgroupFD: 77}
	for i := range maxSpare {
		if !g.again("/g", attr) {
			t.Errorf("empty group %d was not taken", i)
		}
	}
	if g.again("/g", attr) {
		t.Error("more were taken than are kept")
	}
	path, fd, err := g.take()
	if err != nil || path != "/g" || fd != 77 {
		t.Errorf("got %q, %d, %v", path, fd, err)
	}
	if !g.again("/g", attr) {
		t.Error("there was room for one")
	}
}

func TestATreeThatWasGivenAwayIsNotSignalled(t *testing.T) {
	t.Parallel()
	l := &linux{trees: &groups{}}
	if err := l.signal(&process{}, int(unix.SIGKILL), true); err != nil {
		t.Error(err)
	}
	if err := l.signal(&process{tree: "/no/such/group"}, int(unix.SIGKILL), true); err != nil {
		t.Error(err)
	}
}
