package gvisor_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/driver/gvisor"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// command runs a command to its end.
func command(t testing.TB, b sandbox.Box, spec sandbox.ExecSpec) (stdout, stderr string, exit sandbox.Exit) {
	t.Helper()
	p := begin(t, b, spec)
	var streams [3]bytes.Buffer
	for {
		f, err := p.Next(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		streams[f.Stream].Write(f.Data)
	}
	exit, err := p.Wait(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return streams[sandbox.Stdout].String(), streams[sandbox.Stderr].String(), exit
}

// begin starts a command, under an id of its own.
func begin(t testing.TB, b sandbox.Box, spec sandbox.ExecSpec) sandbox.Process {
	t.Helper()
	id, err := sandbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	spec.ID = id
	p, err := b.Exec(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// sh runs a script to its end.
func sh(t testing.TB, b sandbox.Box, script string) (stdout, stderr string, exit sandbox.Exit) {
	t.Helper()
	return command(t, b, sandbox.ExecSpec{Command: []string{"sh", "-c", script}})
}

// say returns what a script prints, with its errors.
func say(t testing.TB, b sandbox.Box, script string) string {
	t.Helper()
	out, errs, _ := sh(t, b, script)
	return strings.TrimSpace(out + errs)
}

// until reads a process's output until it holds the words, and returns it.
func until(t testing.TB, p sandbox.Process, words string) string {
	t.Helper()
	var said bytes.Buffer
	for !strings.Contains(said.String(), words) {
		f, err := p.Next(context.Background())
		if err != nil {
			t.Fatalf("after %q: %v", said.String(), err)
		}
		said.Write(f.Data)
	}
	return said.String()
}

// What code in a sandbox can see and do, and mostly cannot.
func TestWalls(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := box(t, d)

	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("host"), 0o644); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)

	for _, c := range []struct{ name, script, want string }{
		{"user", "id -u; id -g; id -G", "1000\n1000\n1000"},
		{"home", `echo $HOME; pwd`, "/workspace\n/workspace"},
		{"environment", "env | grep -v PWD= | sed s/=.*// | sort | tr '\\n' ' '", "FROM_IMAGE HOME LANG PATH USER"},
		{"capabilities", "grep -E 'Cap|NoNewPrivs' /proc/self/status | cut -f2 | sort -u | tr '\\n' ' '", "0000000000000000 1"},
		{"core", "ulimit -c", "0"},
		{"the host's files", "cat " + secret, "cat: " + secret + ": No such file or directory"},
		{"the host's shadow", "cat /etc/shadow", "cat: /etc/shadow: No such file or directory"},
		{"the rest of the host", "ls -d /home /root /mnt /opt /boot /srv /media 2>/dev/null", ""},
		{"writing to programs", "touch /usr/bin/x", "touch: cannot touch '/usr/bin/x': Permission denied"},
		{"writing to the root", "touch /x", "touch: cannot touch '/x': Permission denied"},
		{"writing to its own", "echo a >/workspace/a && echo b >/tmp/b && cat /workspace/a /tmp/b", "a\nb"},
		{"opening its own output", "echo a >/dev/stdout; echo b >/dev/stderr", "a\nb"},
		{"killing the guest", "kill -9 1 2>&1 | sed 's/.*: //'", "Operation not permitted"},
		{"the guest's descriptors", "ls /proc/1/fd 2>&1 | sed 's/.*: //'", "Permission denied"},
		{"the guest's environment", "cat /proc/1/environ 2>&1 | sed 's/.*: //'", "Permission denied"},
		{"leaving its group", "echo $$ 2>&1 >/sys/fs/cgroup/cgroup.procs | sed 's/.*: //'", "Permission denied"},
		{"the network", "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '", "lo"},
		{"the host's loopback", "bash -c 'echo </dev/tcp/127.0.0.1/" + port + "' 2>&1 | tail -1 | sed 's/.*: //'", "Connection refused"},
		{"gaining rights", "su -c id 2>&1 | grep -c uid=0", "0"},
	} {
		if got := say(t, b, c.script); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Root in a sandbox is root of nothing.
func TestUsers(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	as := func(user, script string) string {
		out, errs, _ := command(t, b, sandbox.ExecSpec{Command: []string{"sh", "-c", script}, User: user})
		return strings.TrimSpace(out + errs)
	}
	for _, c := range []struct{ user, script, want string }{
		{"root", "id -u", "0"},
		{"0", "id -u", "0"},
		{"nobody", "id -u; id -g", "65534\n65534"},
		{"1234", "id -u; id -g", "1234\n1234"},
		{"1234:77", "id -u; id -g", "1234\n77"},
		{"root", "grep Cap /proc/self/status | cut -f2 | sort -u", "0000000000000000"},
		{"root", "kill -9 1 2>&1 | sed 's/.*: //'", "Operation not permitted"},
		{"root", "cat /proc/1/environ 2>&1 | sed 's/.*: //'", "Permission denied"},
		{"root", "echo $$ 2>/dev/null >/sys/fs/cgroup/cgroup.procs || echo no", "no"},
		{"root", "mkdir /sys/fs/cgroup/x 2>/dev/null || echo no", "no"},
		{"root", "touch /usr/bin/x && ls /usr/bin/x", "/usr/bin/x"}, // in this sandbox alone
		{"root", "mount -t tmpfs x /workspace 2>/dev/null || echo no", "no"},
	} {
		if got := as(c.user, c.script); got != c.want {
			t.Errorf("%s as %s: %q, want %q", c.script, c.user, got, c.want)
		}
	}
	if got := say(t, box(t, d), "ls /usr/bin/x 2>&1 | sed 's/.*: //'"); got != "No such file or directory" {
		t.Errorf("what root has written in one sandbox is in another: %q", got)
	}
	for user, kind := range map[string]fault.Kind{"aurea": fault.Denied, "65533": fault.Denied, "5:65533": fault.Denied, "missing": fault.Invalid, "1:x": fault.Invalid} {
		_, err := b.Exec(t.Context(), sandbox.ExecSpec{ID: "x", Command: []string{"true"}, User: user})
		if !fault.Is(err, kind) {
			t.Errorf("as %s: %v, want kind %v", user, err, kind)
		}
	}
}

// A daemon that has left its parent, its session and its pipe is still its
// command's.
func TestTreeHoldsDaemons(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	p := begin(t, b, sandbox.ExecSpec{Command: []string{"sh", "-c", "setsid sh -c 'sleep 1000 & sleep 2000 & exec sleep 3000' >/dev/null 2>&1 </dev/null & echo started"}})
	until(t, p, "started")
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 0 {
		t.Fatal(exit, err)
	}
	const count = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o 'sleep [123]000' | sort -u | wc -l"
	eventually(t, "the daemons run", func() bool { return say(t, b, count) == "3" })
	if err := p.Signal(t.Context(), 9, true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemons are dead", func() bool { return say(t, b, count) == "0" })
}

// eventually asks again, each time with a command's time between, until the
// test's own end.
func eventually(t *testing.T, what string, ask func() bool) {
	t.Helper()
	for !ask() {
		if t.Context().Err() != nil {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	p := begin(t, b, sandbox.ExecSpec{
		Command: []string{"sh", "-c", "stty size; tty; test -w $(tty) && echo mine; trap 'stty size; exit 5' INT; echo ready; while :; do sleep 0.01; done"},
		TTY:     true, Stdin: true, Cols: 91, Rows: 17,
	})
	if said := until(t, p, "ready"); !strings.Contains(said, "17 91") || !strings.Contains(said, "mine") {
		t.Errorf("%q", said)
	}
	if err := p.Resize(t.Context(), 120, 40); err != nil {
		t.Fatal(err)
	}
	if err := p.Write(t.Context(), []byte{3}); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	until(t, p, "40 120")
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 5 {
		t.Errorf("%+v, %v", exit, err)
	}
}

// A socket's path has room for 108 bytes, which must not be the end of a
// deeply nested state folder.
func TestLongStateDir(t *testing.T) {
	t.Parallel()
	d := open(t, filepath.Join(stateDir(t), strings.Repeat("long/", 40)))
	t.Cleanup(func() { d.Close() })
	if got := say(t, box(t, d), "echo hello"); got != "hello" {
		t.Errorf("%q", got)
	}
}

// Files that code has locked even for itself are part of the record, and what
// a worker puts belongs to code.
func TestFiles(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	say(t, b, "echo secret >locked; chmod 000 locked; mkdir shut; echo x >shut/in; chmod 000 shut; mkfifo pipe; ln -s /etc/passwd link")
	names := tarNames(t, b, "/workspace")
	for name, kind := range map[string]byte{"locked": '0', "shut/": '5', "shut/in": '0', "pipe": '6', "link": '2'} {
		if names[name] != kind {
			t.Errorf("%s is %q, want %q (of %v)", name, names[name], kind, names)
		}
	}
	err := b.Put(t.Context(), "/usr/local", strings.NewReader(""))
	if err != nil {
		t.Errorf("an empty archive: %v", err)
	}
	for _, dir := range []string{"/proc/self", "/sys/fs/cgroup"} {
		if err := b.Put(t.Context(), dir, oneFile(t, "x")); err == nil {
			t.Errorf("put into %s succeeded", dir)
		}
	}
	if err := b.Put(t.Context(), "/etc", oneFile(t, "x")); !fault.Is(err, fault.Denied) {
		t.Errorf("put where code may not write: %v", err)
	}
	say(t, b, "ln -s /proc/self trap")
	if err := b.Put(t.Context(), "/workspace/trap", oneFile(t, "mem")); err == nil {
		t.Error("put through a link into the guest succeeded")
	}
	if err := b.Put(t.Context(), "/workspace/deep/er", oneFile(t, "mine")); err != nil {
		t.Fatal(err)
	}
	if got := say(t, b, "stat -c '%U %a' deep/er/mine; cat deep/er/mine; echo; rm deep/er/mine && echo gone"); got != "sandbox 640\nmine\ngone" {
		t.Errorf("%q", got)
	}
}

// The worker's side must not link gVisor: it would be twice its size, and run
// its code.
func TestWorkerLinksNoGVisor(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "github.com/aurea-dev/aurea/internal/driver/gvisor").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range strings.Fields(string(out)) {
		if strings.HasPrefix(pkg, "gvisor.dev/") {
			t.Fatalf("it links %s", pkg)
		}
	}
}

func TestNewSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	_, err := gvisor.New(t.Context(), gvisor.Config{StateDir: t.TempDir(), Sentry: "/missing/sentry", Guest: "/bin/true", Images: images, Logger: logger(t)})
	if !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
	if os.Geteuid() != 0 {
		return
	}
	if _, err = gvisor.New(t.Context(), gvisor.Config{StateDir: t.TempDir(), Sentry: "/bin/true", Guest: "/missing/guest", Images: images, Logger: logger(t)}); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "/missing/guest") {
		t.Errorf("%v", err)
	}
	// A sentry that is no sentry.
	_, err = gvisor.New(t.Context(), gvisor.Config{StateDir: t.TempDir(), Sentry: "/bin/true", Guest: "/bin/true", Images: images, Logger: logger(t)})
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "/bin/true") {
		t.Errorf("%v", err)
	}
}
