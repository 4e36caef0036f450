package corpustest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/image/debiantest"
)

// bareVariable makes this test binary the first process of a room in which
// programs run bare: on the host's kernel, with the image's files and nothing
// else of ours around them.
const bareVariable = "AUREA_TEST_BARE"

// bareRoom runs programs one after the other.
type bareRoom struct {
	to   *json.Encoder
	from *json.Decoder
}

// openBare opens a room over the files of the image.
func openBare(t *testing.T) *bareRoom {
	t.Helper()
	tree, err := debiantest.Tree(context.Background(), debiantest.Languages)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/proc/self/exe")
	c.Env = []string{bareVariable + "=" + tree}
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), c.Wait()); err != nil {
			t.Errorf("the bare room ended with %v", err)
		}
	})
	return &bareRoom{json.NewEncoder(in), json.NewDecoder(out)}
}

func (r *bareRoom) run(p program) (outcome, error) {
	var o outcome
	if err := r.to.Encode(p); err != nil {
		return o, err
	}
	err := r.from.Decode(&o)
	if err == nil && o.Broken != "" {
		err = errors.New(o.Broken)
	}
	return o, err
}

// bareInit is the first process of a room. It lives until its input ends.
func bareInit(tree string) int {
	if err := furnishRoom(tree); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var p program
		err := in.Decode(&p)
		if errors.Is(err, io.EOF) {
			return 0
		}
		var o outcome
		if err == nil {
			o, err = bare(tree, p)
		}
		if err != nil {
			o.Broken = err.Error()
		}
		if out.Encode(o) != nil {
			return 1
		}
	}
}

// furnishRoom mounts what every process finds, as sandboxes have it.
func furnishRoom(tree string) error {
	in := func(name string) string { return filepath.Join(tree, name) }
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("part from the host's mounts: %w", err)
	}
	for _, m := range []struct{ kind, at, data string }{{"proc", "proc", ""}, {"tmpfs", "dev", "mode=755"}} {
		if err := unix.Mount(m.kind, in(m.at), m.kind, unix.MS_NOSUID, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		if err := unix.Mknod(in("dev/"+name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor))); err != nil {
			return fmt.Errorf("make /dev/%s: %w", name, err)
		}
		if err := os.Chmod(in("dev/"+name), 0o666); err != nil {
			return err
		}
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(to, in("dev/"+name)); err != nil {
			return err
		}
	}
	if err := os.Mkdir(in("dev/shm"), 0o777); err != nil {
		return err
	}
	unix.Umask(0o022)
	// Whoever started these tests may have left files open.
	if err := unix.CloseRange(3, 1<<20, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close what was left open: %w", err)
	}
	for what, l := range bareRlimits() {
		if err := unix.Setrlimit(what, &l); err != nil {
			return fmt.Errorf("limit %d: %w", what, err)
		}
	}
	return nil
}

// bareRlimits are those that sandboxes have.
func bareRlimits() map[int]unix.Rlimit {
	return map[int]unix.Rlimit{
		unix.RLIMIT_NOFILE: {Cur: uint64(limits().OpenFiles), Max: uint64(limits().OpenFiles)},
		unix.RLIMIT_CORE:   {},
		unix.RLIMIT_STACK:  {Cur: 8 << 20, Max: unix.RLIM_INFINITY},
	}
}

// bare runs one program, and leaves nothing of it in the room.
func bare(tree string, p program) (outcome, error) {
	for _, f := range []struct{ at, data string }{
		{"workspace", "mode=755"}, {"tmp", "mode=1777"}, {"dev/shm", "mode=1777"},
	} {
		at := filepath.Join(tree, f.at)
		if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID, f.data); err != nil {
			return outcome{}, fmt.Errorf("mount %s: %w", f.at, err)
		}
		defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
	}
	if err := p.layOut(filepath.Join(tree, "workspace")); err != nil {
		return outcome{}, err
	}
	var ours, theirs [3]*os.File
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			return outcome{}, err
		}
		ours[i], theirs[i] = r, w
		if i == 0 {
			ours[i], theirs[i] = w, r
		}
		if err := theirs[i].Chown(1000, 1000); err != nil { // so that /dev/stdin can be opened
			return outcome{}, err
		}
	}
	c := &exec.Cmd{
		Path: lookIn(tree, p.Command[0]), Args: p.Command, Env: p.environ(), Dir: "/workspace",
		Stdin: theirs[0], Stdout: theirs[1], Stderr: theirs[2],
		SysProcAttr: &syscall.SysProcAttr{Chroot: tree, Credential: &syscall.Credential{Uid: 1000, Gid: 1000}, Setsid: true},
	}
	err := c.Start()
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		return outcome{}, err
	}
	var moving sync.WaitGroup
	var said [3]bytes.Buffer
	moving.Go(func() {
		_, _ = io.WriteString(ours[0], p.Stdin)
		_ = ours[0].Close()
	})
	for i := 1; i <= 2; i++ {
		moving.Go(func() {
			_, _ = said[i].ReadFrom(ours[i])
			_ = ours[i].Close()
		})
	}
	late := time.AfterFunc(programTimeout, func() { _ = unix.Kill(-1, unix.SIGKILL) })
	err = c.Wait()
	late.Stop()
	_ = unix.Kill(-1, unix.SIGKILL) // everything in the room but this process
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); errors.Is(err, unix.ECHILD) {
			break
		}
	}
	moving.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return outcome{}, err
	}
	status := c.ProcessState.Sys().(syscall.WaitStatus)
	o := outcome{Stdout: said[1].Bytes(), Stderr: said[2].Bytes(), Code: status.ExitStatus()}
	if status.Signaled() {
		o.Code, o.Signal = -1, int(status.Signal())
	}
	return o, nil
}

// lookIn finds a program where the PATH inside the tree leads.
func lookIn(tree, name string) string {
	for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
		if info, err := os.Lstat(filepath.Join(tree, dir, name)); err == nil && !info.IsDir() {
			return filepath.Join(dir, name)
		}
	}
	return "/usr/bin/" + name
}

// layOut writes the files of a program as the worker does.
func (p program) layOut(dir string) error {
	owner := 0
	if !p.ReadOnly {
		owner = 1000
	}
	for name, text := range p.Files {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
		if err := os.Chown(path, owner, owner); err != nil {
			return err
		}
	}
	artifacts := filepath.Join(dir, "artifacts")
	if err := os.Mkdir(artifacts, 0o755); err != nil {
		return err
	}
	return errors.Join(os.Chown(artifacts, 1000, 1000), os.Chown(dir, owner, owner))
}
