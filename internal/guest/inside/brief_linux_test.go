package inside

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// Which part this program plays when a test runs it: who is traced, or who traces
// a process of a number.
const partOfTrace = "INSIDE_TEST_TRACE"

const tracedPart = "traced"

// TestTracePart is what a test of traces runs beside itself.
func TestTracePart(t *testing.T) {
	part := os.Getenv(partOfTrace)
	switch part {
	case "":
		return // it plays none
	case tracedPart:
		if err := unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) { // where there is no Yama nobody need allow it
			t.Fatal(err)
		}
	default:
		runtime.LockOSThread() // a thread traces, and not a process
		pid, err := strconv.Atoi(part)
		if err == nil {
			err = unix.PtraceSeize(pid)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is told to end
}

// beside starts a part, and returns when it is ready. What it returns closes its
// input.
func beside(t *testing.T, part string) (*exec.Cmd, io.Closer) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestTracePart$")
	cmd.Env = append(os.Environ(), partOfTrace+"="+part)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the part %s said %q, %v", part, line, err)
	}
	return cmd, in
}

// TestATracedCommandIsNotWaitedFor collects a command that has ended and whose
// tracer has not looked: that must not wait for the tracer, with the guest's lock
// in hand.
func TestATracedCommandIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	const patience = time.Minute
	traced, _ := beside(t, tracedPart)
	tracer, end := beside(t, strconv.Itoa(traced.Process.Pid))
	fd, err := unix.PidfdOpen(traced.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := traced.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	n := &lane{pidfd: fd, out: [2]int{-1, -1}}
	if ready, err := n.wait(&trips{}, patience, false); err != nil || !ready.end {
		t.Fatalf("the traced one is not said to have ended: %+v, %v", ready, err)
	}
	c := &command{process: &process{pid: traced.Process.Pid, alive: true}}
	l := &linux{children: map[int]*command{traced.Process.Pid: c}}
	done := make(chan [2]bool, 1)
	go func() {
		collected, over := l.collectOf(c, c.process)
		done <- [2]bool{collected, over}
	}()
	select {
	case got := <-done:
		if got != [2]bool{} || !c.process.alive {
			t.Errorf("collected, over: %v, and its number is its own: %t", got, c.process.alive)
		}
	case <-time.After(patience):
		t.Error("it waits for the tracer")
	}
	_ = end.Close()
	if err := tracer.Wait(); err != nil {
		t.Error(err)
	}
	if err := traced.Wait(); err == nil {
		t.Error("the traced one ended well, and was killed")
	}
}

// TestAThievingCommandIsNotWaitedFor takes what a command has said, and what it
// read away itself in between: that must not wait until it says more.
func TestAThievingCommandIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	const patience = time.Minute
	p := &process{}
	p.briefly(wire.Open{})
	n := p.lane
	l := &linux{null: -1}
	theirs, err := l.plumb(p, wire.Open{}, user{uint32(os.Getuid()), uint32(os.Getgid())})
	defer func() { (&trips{}).closeAll(append(n.drop(), theirs.but(-1)...)) }()
	if err != nil {
		t.Fatal(err)
	}
	thief, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", theirs[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = thief.Close() }()
	if _, err := unix.Write(int(theirs[1]), []byte("word")); err != nil {
		t.Fatal(err)
	}
	if ready, err := n.wait(&trips{}, patience, true); err != nil || ready.out[0]&unix.POLLIN == 0 {
		t.Fatalf("nothing is said to be there: %+v, %v", ready, err)
	}
	if _, err := io.ReadFull(thief, make([]byte, len("word"))); err != nil {
		t.Fatal(err)
	}
	done := make(chan int, 1)
	go func() { done <- n.take(0, make([]byte, 100), nil) }()
	select {
	case got := <-done:
		if got != 0 || n.ended[0] {
			t.Errorf("took %d, and the pipe has ended: %t", got, n.ended[0])
		}
	case <-time.After(patience):
		t.Error("it waits for more")
	}
}
