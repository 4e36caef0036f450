package gvisor_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/driver/gvisor"
	"github.com/aurea-dev/aurea/internal/driver/gvisor/gvisortest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/spawn"
)

func logger(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

func oneFile(t testing.TB, name string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o640, Size: int64(len(name))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, name); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// tarNames returns what a Get packs, by type.
func tarNames(t testing.TB, b sandbox.Box, path string) map[string]byte {
	t.Helper()
	var archive bytes.Buffer
	if err := b.Get(context.Background(), path, &archive); err != nil {
		t.Fatal(err)
	}
	names := map[string]byte{}
	for r := tar.NewReader(&archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names[h.Name] = h.Typeflag
	}
}

// victim is a worker that is killed: it makes a sandbox, starts a command, and
// waits for its end, which comes from outside.
func victim(folder string) int {
	ctx := context.Background()
	d, err := gvisor.New(ctx, gvisor.Config{
		StateDir: folder,
		Sentry:   os.Getenv("AUREA_TEST_SENTRY"), Guest: os.Getenv("AUREA_TEST_GUEST"), Images: gvisortest.Images{Root: os.Getenv("AUREA_TEST_IMAGE")},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	b, err := d.Create(ctx, sandbox.Spec{ID: "victims", Env: map[string]string{"WHO": "victim"}}, func(sandbox.Handle) error { return nil })
	if err != nil {
		fmt.Println(err)
		return 1
	}
	script := `for i in $(seq 1 200000); do echo "line $i"; done; exit 9`
	if _, err := b.Exec(ctx, sandbox.ExecSpec{ID: "long", Command: []string{"sh", "-c", script}}); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("started")
	select {}
}

// kill -9 of a worker: its sandbox goes on, its spawners end, and the next
// worker has all of the output and the exit code.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	needRoot(t)
	folder := stateDir(t)
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(own)
	cmd.Env = append(os.Environ(), "AUREA_TEST_VICTIM="+folder,
		"AUREA_TEST_SENTRY="+filepath.Join(binaries, "aurea-sentry"), "AUREA_TEST_GUEST="+filepath.Join(binaries, "aurea-guest"), "AUREA_TEST_IMAGE="+images.Root)
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 100)
	n, err := said.Read(line)
	if err != nil || string(line[:n]) != "started\n" {
		t.Fatalf("%q, %v", line[:n], err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed

	d := open(t, folder)
	t.Cleanup(func() { d.Close() })
	handles, err := d.List(t.Context())
	if err != nil || len(handles) != 1 {
		t.Fatal(handles, err)
	}
	b, err := d.Recover(t.Context(), handles[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { drivertest.Destroy(t, d, b) })
	p, err := b.Attach(t.Context(), "long", sandbox.Offsets{})
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for {
		f, err := p.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		lines += bytes.Count(f.Data, []byte("\n"))
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 9 || lines != 200000 {
		t.Errorf("%+v, %v, %d lines", exit, err, lines)
	}
	if got := say(t, b, "echo $WHO"); got != "victim" {
		t.Errorf("the environment is %q", got)
	}
}

// made reads what the spawner wrote of a sandbox's processes.
func made(t testing.TB, folder string, b sandbox.Box) spawn.Made {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(folder, "box", b.Handle().ID, "process.json"))
	if err != nil {
		t.Fatal(err)
	}
	var m spawn.Made
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// When the sentry dies, so does everything in the sandbox, and everybody hears
// of it.
func TestKilledSentry(t *testing.T) {
	t.Parallel()
	folder := stateDir(t)
	d := open(t, folder)
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	p := begin(t, b, sandbox.ExecSpec{Command: []string{"sh", "-c", "echo up; sleep 1000"}})
	until(t, p, "up")
	if err := unix.Kill(made(t, folder, b).Sentry.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-b.Done()
	if exit, err := p.Wait(t.Context()); err != nil || !exit.Lost {
		t.Errorf("%+v, %v", exit, err)
	}
	if _, err := d.Recover(t.Context(), b.Handle()); !fault.Is(err, fault.NotFound) {
		t.Errorf("recover: %v", err)
	}
}

// The numbers of dead processes are given to others, which Destroy must spare:
// here a bystander's number is written down, with another start time, or as of
// another run of the machine.
func TestDestroySparesBystanders(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(body string, start uint64) (record, processes string){
		"another start": func(body string, start uint64) (string, string) {
			return body, fmt.Sprintf(`{"sentry":{"pid":PID,"start":%d}}`, start+1)
		},
		"another boot": func(body string, start uint64) (string, string) {
			i := strings.Index(body, `"boot":"`) + len(`"boot":"`)
			return body[:i] + "x" + body[i:], fmt.Sprintf(`{"sentry":{"pid":PID,"start":%d}}`, start)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := stateDir(t)
			d := open(t, folder)
			t.Cleanup(func() { d.Close() })
			bystander := exec.Command("sleep", "1000")
			if err := bystander.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = bystander.Process.Kill()
				_ = bystander.Wait()
			}()
			p, err := spawn.FindProcess(bystander.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			b := drivertest.Create(t, d, sandbox.Spec{})
			dir := filepath.Join(folder, "box", b.Handle().ID)
			body, err := os.ReadFile(filepath.Join(dir, "box.json"))
			if err != nil {
				t.Fatal(err)
			}
			drivertest.Destroy(t, d, b)
			record, processes := change(string(body), p.Start)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			processes = strings.ReplaceAll(processes, "PID", fmt.Sprint(p.PID))
			for file, content := range map[string]string{"box.json": record, "process.json": processes} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := d.Recover(t.Context(), b.Handle()); !fault.Is(err, fault.NotFound) {
				t.Errorf("recover: %v", err)
			}
			drivertest.Destroy(t, d, b)
			if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder is left: %v", err)
			}
			if err := bystander.Process.Signal(syscall.Signal(0)); err != nil {
				t.Errorf("the bystander is dead: %v", err)
			}
		})
	}
}

// A handle comes from a database: its id must not become a path.
func TestHandlesThatAreNone(t *testing.T) {
	t.Parallel()
	folder := stateDir(t)
	d := open(t, folder)
	t.Cleanup(func() { d.Close() })
	precious := filepath.Join(folder, "precious")
	if err := os.Mkdir(precious, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, h := range []sandbox.Handle{
		{Version: 1, Driver: "gvisor", ID: "../precious"},
		{Version: 1, Driver: "gvisor", ID: ""},
		{Version: 1, Driver: "gvisor", ID: "."},
		{Version: 1, Driver: "docker", ID: "a"},
		{Version: 99, Driver: "gvisor", ID: "a"},
	} {
		if err := d.Destroy(t.Context(), h); !fault.Is(err, fault.Invalid) {
			t.Errorf("destroy %+v: %v", h, err)
		}
		if _, err := d.Recover(t.Context(), h); !fault.Is(err, fault.Invalid) {
			t.Errorf("recover %+v: %v", h, err)
		}
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

// A spawner whose worker has died ends by itself.
func TestSpawnerEndsWithItsWorker(t *testing.T) {
	t.Parallel()
	needRoot(t)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	ours.Close()
	cmd := exec.Command(filepath.Join(binaries, "aurea-sentry"), "spawn")
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	var response spawn.Response
	if err := errors.Join(spawn.WriteMessage(conn, spawn.Request{Seq: 5}), spawn.ReadMessage(conn, &response)); err != nil || response.Seq != 5 {
		t.Errorf("%+v, %v", response, err)
	}
	conn.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// A spawner that has made many sandboxes holds no descriptors of theirs for
// long, and no zombie.
func TestSpawnerKeepsNothing(t *testing.T) {
	t.Parallel()
	needRoot(t)
	folder := stateDir(t)
	d := openWith(t, gvisor.Config{StateDir: folder, Spawners: 1})
	t.Cleanup(func() { d.Close() })
	const rounds, bound = 24, 40
	for range rounds {
		b := drivertest.Create(t, d, sandbox.Spec{})
		sentry := made(t, folder, b).Sentry.PID
		spawner := parent(t, sentry)
		drivertest.Destroy(t, d, b)
		eventually(t, "the sentry is reaped", func() bool {
			_, err := os.Stat(fmt.Sprintf("/proc/%d", sentry))
			return errors.Is(err, os.ErrNotExist)
		})
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%s/fd", spawner))
		if err != nil {
			t.Fatal(err)
		}
		if len(fds) > bound { // each sandbox takes two, and they are let go in groups
			t.Fatalf("spawner %s holds %d descriptors", spawner, len(fds))
		}
	}
}

// parent returns the number of a process's parent.
func parent(t *testing.T, pid int) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "PPid:\t")
	ppid, _, _ := strings.Cut(rest, "\n")
	return ppid
}

// Sandboxes that come and go, some of them interrupted, leave nothing.
func TestComingAndGoing(t *testing.T) {
	t.Parallel()
	folder := stateDir(t)
	d := open(t, folder)
	t.Cleanup(func() { d.Close() })
	var group sync.WaitGroup
	for i := range 3 {
		group.Go(func() {
			for n := range 4 {
				id := fmt.Sprintf("x%dn%d", i, n)
				ctx, cancel := context.WithCancelCause(t.Context())
				var handle sandbox.Handle
				b, err := d.Create(ctx, sandbox.Spec{ID: id}, func(h sandbox.Handle) error {
					handle = h
					if n%2 == 1 {
						group.Go(func() {
							_ = d.Destroy(t.Context(), h)
							cancel(errors.New("enough"))
						})
					}
					return nil
				})
				if n%2 == 0 && err != nil {
					t.Errorf("create: %v", err)
				}
				if err == nil && n%2 == 0 {
					if got := say(t, b, "echo hi"); got != "hi" {
						t.Errorf("%q", got)
					}
				}
				if err := d.Destroy(t.Context(), handle); err != nil {
					t.Errorf("destroy: %v", err)
				}
				cancel(nil)
			}
		})
	}
	group.Wait()
	if left, err := d.List(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	d.Close() // with its spawners, which run from a file in the folder
	if left := drivertest.Traces(t, folder); len(left) > 0 {
		t.Errorf("left on the host: %q", left)
	}
}
