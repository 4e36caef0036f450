package gvisor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/driver/gvisor"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// snapshot takes one, into a folder of its own.
func snapshot(t testing.TB, b sandbox.Box, o sandbox.SnapshotOptions) (string, sandbox.Snapshot) {
	t.Helper()
	where := filepath.Join(t.TempDir(), "snapshot")
	made, err := b.(sandbox.Snapshotter).Snapshot(context.Background(), where, o)
	if err != nil {
		t.Fatal(err)
	}
	return where, made
}

// restore makes a sandbox that goes on from a snapshot, until the end of the test.
func restore(t testing.TB, d *gvisor.Driver, spec sandbox.Spec) sandbox.Box {
	t.Helper()
	b := drivertest.Create(t, d, spec)
	t.Cleanup(func() { drivertest.Destroy(t, d, b) })
	return b
}

func attach(t testing.TB, b sandbox.Box, id string, at sandbox.Offsets) sandbox.Process {
	t.Helper()
	p, err := b.Attach(context.Background(), id, at)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// count reads numbers from a process, each of which must follow the one before,
// until one is reached. It returns the next one.
func count(p sandbox.Process, at *sandbox.Offsets, next, until int, rest *string) (int, error) {
	for next <= until {
		f, err := p.Next(context.Background())
		if err != nil {
			return next, err
		}
		if f.Offset != at.Stdout {
			return next, fmt.Errorf("a frame at %d, expected at %d", f.Offset, at.Stdout)
		}
		at.Stdout += int64(len(f.Data))
		*rest += string(f.Data)
		for {
			line, behind, whole := strings.Cut(*rest, "\n")
			if !whole {
				break
			}
			if line != fmt.Sprint(next) {
				return next, fmt.Errorf("said %q, expected %d", line, next)
			}
			*rest, next = behind, next+1
		}
	}
	return next, nil
}

const counting = `i=0; while :; do echo $i; i=$((i+1)); sleep 0.05; done`

// A counter goes on through everything, and in each of twenty forks.
func TestCounterGoesOn(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := drivertest.Create(t, d, sandbox.Spec{})
	p := begin(t, b, sandbox.ExecSpec{Command: []string{"sh", "-c", counting}})
	var at sandbox.Offsets
	var rest string
	next := 0
	read := func(more int) {
		t.Helper()
		var err error
		if next, err = count(p, &at, next, next+more, &rest); err != nil {
			t.Fatal(err)
		}
	}
	read(3)
	for range 3 {
		if err := b.(sandbox.Pauser).Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.(sandbox.Pauser).Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		read(2)
	}
	for generation := range int64(3) {
		where, _ := snapshot(t, b, sandbox.SnapshotOptions{Generation: generation + 1, Aside: true})
		drivertest.Destroy(t, d, b)
		var err error
		if b, err = d.Create(t.Context(), sandbox.Spec{ID: b.Handle().ID, Restore: where, Generation: generation + 1}, func(sandbox.Handle) error { return nil }); err != nil {
			t.Fatal(err)
		}
		p = attach(t, b, p.ID(), at)
		read(2)
	}
	t.Cleanup(func() { drivertest.Destroy(t, d, b) })
	where, made := snapshot(t, b, sandbox.SnapshotOptions{})
	if made.Offsets[p.ID()] != at {
		t.Errorf("at %+v, the snapshot says %+v", at, made.Offsets)
	}
	var group sync.WaitGroup
	for range 20 {
		f := restore(t, d, sandbox.Spec{Restore: where})
		q := attach(t, f, p.ID(), at)
		group.Go(func() {
			at, rest := at, rest
			if _, err := count(q, &at, next, next+10, &rest); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	read(3)
}

// busy is a Python with all that a process can hold.
const busy = `
import os, socket, subprocess, sys, threading
f = open("open.txt", "w+"); f.write("written"); f.flush()
gone = open("gone.txt", "w+"); gone.write("unlinked"); gone.flush(); os.unlink("gone.txt")
listener = socket.create_server(("127.0.0.1", 0))
there = socket.create_connection(listener.getsockname()); here, _ = listener.accept()
r, w = os.pipe(); os.write(w, b"piped")
child = subprocess.Popen(["sh", "-c", "read line; echo child $line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
asked, answered = threading.Event(), []
def work():
    asked.wait(); answered.append(threading.current_thread().name)
thread = threading.Thread(target=work, name="thread"); thread.start()
print("up", os.getpid(), child.pid, flush=True)
sys.stdin.readline()
asked.set(); thread.join()
f.write(" more"); f.seek(0); gone.seek(0)
there.sendall(b"socket")
late = socket.create_connection(listener.getsockname()); later, _ = listener.accept(); late.sendall(b"late")
print(f.read(), gone.read(), here.recv(100).decode(), later.recv(100).decode(), os.read(r, 100).decode(), answered[0],
      child.communicate("goes on\n")[0].strip(), os.getpid(), child.pid, child.returncode, flush=True)
sys.exit(9)
`

// Whatever a program holds, it holds on to: where it was, and in a fork.
func TestProgramGoesOn(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	p := begin(t, b, sandbox.ExecSpec{Command: []string{"python3", "-c", busy}, Stdin: true})
	said := until(t, p, "\n")
	pids := strings.Fields(said)[1:]
	at := sandbox.Offsets{Stdout: int64(len(said))}
	where, _ := snapshot(t, b, sandbox.SnapshotOptions{})
	want := fmt.Sprintf("written more unlinked socket late piped thread child goes on %s %s 0\n", pids[0], pids[1])
	for name, q := range map[string]sandbox.Process{
		"where it was": p,
		"a fork":       attach(t, restore(t, d, sandbox.Spec{Restore: where}), p.ID(), at),
		"another fork": attach(t, restore(t, d, sandbox.Spec{Restore: where}), p.ID(), at),
	} {
		if err := q.Write(t.Context(), []byte("go\n")); err != nil {
			t.Fatal(name, err)
		}
		var got string
		for {
			f, err := q.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(name, err)
			}
			got += string(f.Data)
		}
		if exit, err := q.Wait(t.Context()); got != want || err != nil || exit.Code != 9 {
			t.Errorf("%s: said %q, expected %q; %+v, %v", name, got, want, exit, err)
		}
	}
}

// A terminal goes on with its size, its foreground process and its keys.
func TestTerminalGoesOn(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	script := `trap 'echo interrupted' INT; echo up; while :; do read line || continue; case "$line" in size) stty size;; *) echo "said $line";; esac; done`
	p := begin(t, b, sandbox.ExecSpec{Command: []string{"sh", "-c", script}, TTY: true, Stdin: true, Cols: 91, Rows: 33})
	at := sandbox.Offsets{Stdout: int64(len(until(t, p, "up\r\n")))}
	where, _ := snapshot(t, b, sandbox.SnapshotOptions{Aside: true})
	q := attach(t, restore(t, d, sandbox.Spec{Restore: where}), p.ID(), at)
	for _, step := range []struct{ key, hears string }{
		{"hello\n", "said hello"}, {"size\n", "33 91"}, {"\x03", "interrupted"}, {"again\n", "said again"},
	} {
		if err := q.Write(t.Context(), []byte(step.key)); err != nil {
			t.Fatal(err)
		}
		until(t, q, step.hears)
	}
	if err := q.Resize(t.Context(), 100, 40); err != nil {
		t.Fatal(err)
	}
	if err := q.Write(t.Context(), []byte("size\n")); err != nil {
		t.Fatal(err)
	}
	until(t, q, "40 100")
}

// Snapshots that come and go leave nothing.
func TestSnapshotsLeaveNothing(t *testing.T) {
	t.Parallel()
	folder := stateDir(t)
	d := openWith(t, gvisor.Config{StateDir: folder, Spawners: 1})
	t.Cleanup(func() { d.Close() })
	id := "again"
	b, err := d.Create(t.Context(), sandbox.Spec{ID: id}, func(sandbox.Handle) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	say(t, b, "echo kept > kept.txt")
	before := descriptors(t, folder)
	for round := range 50 {
		where, _ := snapshot(t, b, sandbox.SnapshotOptions{Aside: round%2 == 0})
		sentry := made(t, folder, b).Sentry.PID
		drivertest.Destroy(t, d, b)
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", sentry)); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("round %d: the sentry is left: %v", round, err)
		}
		if left, err := os.ReadDir(filepath.Join(folder, "box")); err != nil || len(left) > 0 {
			t.Fatalf("round %d: left %v, %v", round, left, err)
		}
		if b, err = d.Create(t.Context(), sandbox.Spec{ID: id, Restore: where}, func(sandbox.Handle) error { return nil }); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := os.RemoveAll(where); err != nil {
			t.Fatal(err)
		}
	}
	if got := say(t, b, "cat kept.txt"); got != "kept" {
		t.Errorf("%q", got)
	}
	if after := descriptors(t, folder); after != before {
		t.Errorf("%d descriptors, then %d", before, after)
	}
	drivertest.Destroy(t, d, b)
}

// descriptors counts those of ours that lead into a folder.
func descriptors(t testing.TB, folder string) int {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, folder) {
			n++
		}
	}
	return n
}

// Who gives up in the middle of a snapshot has a sandbox that goes on, and no
// folder; and a spawner that is killed in the middle of a restore leaves nothing.
func TestSnapshotIsInterrupted(t *testing.T) {
	t.Parallel()
	folder := stateDir(t)
	d := openWith(t, gvisor.Config{StateDir: folder, Spawners: 1})
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	p := begin(t, b, sandbox.ExecSpec{Command: []string{"sh", "-c", counting}})
	say(t, b, "head -c 100000000 /dev/urandom > large")
	var at sandbox.Offsets
	var rest string
	next, err := count(p, &at, 0, 3, &rest)
	if err != nil {
		t.Fatal(err)
	}
	where := filepath.Join(t.TempDir(), "snapshot")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		// As soon as it is being saved.
		for ctx.Err() == nil {
			if state, err := os.ReadFile(filepath.Join(folder, "box", b.Handle().ID, "pause")); err == nil && string(state) == "saving" {
				cancel(errors.New("enough"))
			}
		}
	}()
	_, err = b.(sandbox.Snapshotter).Snapshot(ctx, where, sandbox.SnapshotOptions{Aside: true})
	cancel(nil)
	if _, left := os.Stat(where); (err == nil) != (left == nil) { // it may have been too fast for us
		t.Errorf("the snapshot: %v; its folder: %v", err, left)
	}
	if err == nil {
		if err := b.(sandbox.Pauser).Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := count(p, &at, next, next+5, &rest); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	good, _ := snapshot(t, b, sandbox.SnapshotOptions{})
	var spawner int
	if _, err := fmt.Sscan(parent(t, made(t, folder, b).Sentry.PID), &spawner); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	defer close(over)
	go func() {
		// Its process is written down before it is restored.
		for !closed(over) {
			if _, err := os.Stat(filepath.Join(folder, "box", "never", "process.json")); err == nil {
				_ = unix.Kill(spawner, unix.SIGKILL)
				return
			}
		}
	}()
	f, err := d.Create(t.Context(), sandbox.Spec{ID: "never", Restore: good}, func(sandbox.Handle) error { return nil })
	if err == nil { // it was done before it was killed
		drivertest.Destroy(t, d, f)
	}
	if left, err := d.List(t.Context()); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
	if got := say(t, restore(t, d, sandbox.Spec{Restore: good}), "wc -c < large"); got != "100000000" {
		t.Errorf("%q", got)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A worker that is killed in the middle of a snapshot leaves the sandbox to the
// next, and a folder that is no snapshot.
func TestSnapshotOfAKilledWorker(t *testing.T) {
	t.Parallel()
	folder := stateDir(t)
	first := open(t, folder)
	b := drivertest.Create(t, first, sandbox.Spec{})
	say(t, b, "echo here > file")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	// As it left it: silent, being saved, with the files half written.
	torn := filepath.Join(t.TempDir(), "snapshot")
	if err := os.Mkdir(torn, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		filepath.Join(folder, "box", b.Handle().ID, "pause"): "saving",
		filepath.Join(torn, "checkpoint.img"):                "half",
		filepath.Join(torn, "pages.img"):                     "half",
		filepath.Join(torn, "pages_meta.img"):                "half",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	second := open(t, folder)
	t.Cleanup(func() { second.Close() })
	b, err := second.Recover(t.Context(), b.Handle())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { drivertest.Destroy(t, second, b) })
	if got := say(t, b, "cat file"); got != "here" {
		t.Errorf("%q", got)
	}
	_, err = second.Create(t.Context(), sandbox.Spec{ID: "torn", Restore: torn}, func(sandbox.Handle) error { return nil })
	if fault.CodeOf(err) != sandbox.CodeSnapshotBroken {
		t.Errorf("%v", err)
	}
}

// A Python of the pool's that waits is seeded anew in a fork when it gets its
// program.
func TestWaitingPythonIsSeededAnew(t *testing.T) {
	t.Parallel()
	launcher, err := os.ReadFile("../../pool/launcher/python.py")
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	// The image's own start has imported and seeded the generator.
	for dir, text := range map[string]string{"/tmp/.aurea": string(launcher), "/tmp/own": "import random; random.seed(1)"} {
		if _, errs, exit := command(t, b, sandbox.ExecSpec{Command: []string{"python3", "-c", "import os, sys; os.mkdir(sys.argv[1]); open(sys.argv[1] + '/sitecustomize.py', 'w').write(sys.argv[2])", dir, text}}); exit.Code != 0 {
			t.Fatal(errs)
		}
	}
	p := begin(t, b, sandbox.ExecSpec{
		Command: []string{"python3", "main.py"}, Stdin: true,
		Env: map[string]string{"AUREA_LAUNCHER": "/tmp/.aurea", "PYTHONPATH": "/tmp/.aurea:/tmp/own"},
	})
	at := sandbox.Offsets{Stdout: int64(len(until(t, p, "aurea: ready\n")))}
	say(t, b, "echo 'import random; print(random.random())' > main.py")
	where, _ := snapshot(t, b, sandbox.SnapshotOptions{})
	const seeded = "0.13436424411240122\n" // the first of seed 1
	seen := map[string]bool{seeded: true}
	handOver := []byte("0000000002" + "0\x00")
	if err := p.Write(t.Context(), handOver); err != nil {
		t.Fatal(err)
	}
	if got := until(t, p, "\n"); got != seeded {
		t.Errorf("where it was: %q", got)
	}
	for range 2 {
		q := attach(t, restore(t, d, sandbox.Spec{Restore: where}), p.ID(), at)
		if err := q.Write(t.Context(), handOver); err != nil {
			t.Fatal(err)
		}
		if got := until(t, q, "\n"); seen[got] {
			t.Errorf("a fork says %q again", got)
		} else {
			seen[got] = true
		}
	}
}

// BenchmarkSnapshot is a snapshot of a sandbox with a waiting Python, and a fork of
// it, up to its first answer.
func BenchmarkSnapshot(b *testing.B) {
	d := open(b, stateDir(b))
	defer d.Close()
	box := drivertest.Create(b, d, sandbox.Spec{})
	defer drivertest.Destroy(b, d, box)
	p := begin(b, box, sandbox.ExecSpec{Command: []string{"python3", "-c", "import json, random; print('up', flush=True); input()"}, Stdin: true})
	until(b, p, "up")
	var snapshots, forks []time.Duration
	var size, memory int64
	dir := b.TempDir()
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		where := filepath.Join(dir, fmt.Sprint(i))
		made, err := box.(sandbox.Snapshotter).Snapshot(b.Context(), where, sandbox.SnapshotOptions{})
		if err != nil {
			b.Fatal(err)
		}
		snapshots = append(snapshots, time.Since(began))
		size = made.Bytes
		began = time.Now()
		f := drivertest.Create(b, d, sandbox.Spec{Restore: where})
		runTrue(b, f)
		forks = append(forks, time.Since(began))
		u, err := f.Usage(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		memory = u.PeakMemory
		drivertest.Destroy(b, d, f)
		if err := os.RemoveAll(where); err != nil {
			b.Fatal(err)
		}
	}
	report(b, snapshots)
	slices.Sort(forks)
	b.ReportMetric(float64(forks[len(forks)/2].Microseconds())/1000, "fork-p50-ms")
	b.ReportMetric(float64(size)/(1<<20), "MiB")
	b.ReportMetric(float64(memory)/(1<<20), "fork-peak-MiB")
}
