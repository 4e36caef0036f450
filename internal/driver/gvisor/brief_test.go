package gvisor_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Commands that are over in a moment are watched in another way than those that
// last, and some are just on the border.
func TestBriefCommands(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range 25 {
				said, errs, exit := command(t, b, sandbox.ExecSpec{Command: []string{"echo", fmt.Sprint(i)}})
				if said != fmt.Sprintln(i) || errs != "" || exit.Code != 0 {
					t.Errorf("echo %d said %q %q, %+v", i, said, errs, exit)
				}
			}
		})
	}
	group.Wait()
	many := strings.Repeat("\x00", 110_000)
	for _, c := range []struct {
		args      []string
		said      string
		code, sig int
	}{
		{[]string{"false"}, "", 1, 0},
		{[]string{"head", "-c", "110000", "/dev/zero"}, many, 0, 0},
		{[]string{"sh", "-c", "kill -9 $$"}, "", -1, 9},
		{[]string{"sh", "-c", "exec >/dev/null 2>&1; sleep 0.05; exit 4"}, "", 4, 0},
		{[]string{"sh", "-c", "echo begun; sleep 1000 & exit 3"}, "begun\n", 3, 0},
	} {
		said, _, exit := command(t, b, sandbox.ExecSpec{Command: c.args})
		if said != c.said || exit.Signal != c.sig || c.sig == 0 && exit.Code != c.code {
			t.Errorf("%.40q said %.40q, %+v", c.args, said, exit)
		}
	}
	// What they leave behind is looked after when it ends, also while nothing else
	// runs.
	say(t, b, "kill -9 $(grep -l '^sleep' /proc/[0-9]*/cmdline 2>/dev/null | grep -o '[0-9]*')")
	eventually(t, "what was left is gone", func() bool {
		return say(t, b, "grep -h '^Name' /proc/[0-9]*/status 2>/dev/null | grep -c sleep") == "0"
	})
}

// TestThievingCommands has commands that read away what they have just said, from
// the guest's end of their own pipe, and say no more: whoever is faster, other
// commands go on, and the end is told.
func TestThievingCommands(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	const thief = "exec 3</proc/self/fd/1; echo word; read x <&3; read x <&3"
	thieves := make([]sandbox.Process, 40)
	for i := range thieves {
		thieves[i] = begin(t, b, sandbox.ExecSpec{Command: []string{"sh", "-c", thief}})
		if said, errs, exit := command(t, b, sandbox.ExecSpec{Command: []string{"echo", fmt.Sprint(i)}}); said != fmt.Sprintln(i) || exit.Code != 0 {
			t.Errorf("echo %d beside thieves said %q %q, %+v", i, said, errs, exit)
		}
	}
	for _, p := range thieves {
		if err := p.Signal(t.Context(), 9, true); err != nil {
			t.Error(err)
		}
		if exit, err := p.Wait(t.Context()); err != nil || exit.Signal != 9 {
			t.Errorf("a thief ended %+v, %v", exit, err)
		}
	}
}

// hangs is how many programs are being started; one is the guest itself.
const hangs = "grep -lx guest /proc/[0-9]*/comm 2>/dev/null | wc -l"

// TestAPipeIsNoProgram starts pipes that have a program's name, which nobody writes
// to: each waits to be opened for ever. Other commands go on and come to their end,
// what others leave is looked after, and who gives up waiting gets the guest to end
// it.
func TestAPipeIsNoProgram(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	say(t, b, "mkfifo -m 755 /tmp/pipe")
	cat := begin(t, b, sandbox.ExecSpec{Command: []string{"cat"}, Stdin: true})
	var ids []string
	var starts sync.WaitGroup
	short, cancel := context.WithCancel(t.Context())
	for i := range 3 {
		id := fmt.Sprintf("pipe-%d", i)
		ids = append(ids, id)
		starts.Go(func() {
			if _, err := b.Exec(short, sandbox.ExecSpec{ID: id, Command: []string{"/tmp/pipe"}}); err == nil {
				t.Error("a pipe was started")
			}
		})
	}
	eventually(t, "they are being started", func() bool { return say(t, b, hangs) == "4" })
	for i := range 20 {
		said, _, exit := command(t, b, sandbox.ExecSpec{Command: []string{"sh", "-c", fmt.Sprintf("(sleep 0.01; true) & echo %d", i)}})
		if said != fmt.Sprintln(i) || exit.Code != 0 {
			t.Errorf("beside pipes echo %d said %q, %+v", i, said, exit)
		}
	}
	if err := cat.CloseInput(t.Context()); err != nil {
		t.Error(err)
	}
	if exit, err := cat.Wait(t.Context()); err != nil || exit.Code != 0 {
		t.Errorf("beside pipes cat ended %+v, %v", exit, err)
	}
	eventually(t, "what they left was collected", func() bool {
		return say(t, b, "grep -l '^State:.*Z' /proc/[0-9]*/status 2>/dev/null | wc -l") == "0"
	})
	cancel()
	starts.Wait()
	for _, id := range ids {
		kill(t, b, id)
	}
	eventually(t, "they are gone", func() bool { return say(t, b, hangs) == "1" })
}

// TestAStartIsKilledAtAnyMoment gives starts up that hang, and kills them, when they
// may have got no process yet.
func TestAStartIsKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	say(t, b, "mkfifo -m 755 /tmp/pipe")
	for i := range 60 {
		id := fmt.Sprintf("pipe-%d", i)
		short, cancel := context.WithTimeout(t.Context(), time.Duration(i)*20*time.Microsecond)
		if _, err := b.Exec(short, sandbox.ExecSpec{ID: id, Command: []string{"/tmp/pipe"}}); err == nil {
			t.Error("a pipe was started")
		}
		cancel()
		kill(t, b, id)
	}
	eventually(t, "they are gone", func() bool { return say(t, b, hangs) == "1" })
}

// kill kills a command whose start was given up, if the guest has heard of it.
func kill(t *testing.T, b sandbox.Box, id string) {
	t.Helper()
	p, err := b.Attach(t.Context(), id, sandbox.Offsets{})
	if fault.Is(err, fault.NotFound) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(t.Context(), 9, true); err != nil {
		t.Error(err)
	}
}

// TestATracedCommand has a command traced by its own child when it ends: it is its
// parent's only when the tracer has looked, which it never does. Other commands go
// on, and the end is told when the tracer is gone.
func TestATracedCommand(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	const traced = `
import ctypes, os, time
c = ctypes.CDLL(None)
c.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
c.prctl.argtypes = [ctypes.c_int] + 4 * [ctypes.c_ulong]
c.prctl(0x59616d61, 2**64 - 1, 0, 0, 0) # whoever likes may trace it
me, (r, w) = os.getpid(), os.pipe()
child = os.fork()
if child == 0:
    os.close(1)
    os.close(2)
    if c.ptrace(0x4206, me, None, None) == 0: # seize
        os.write(w, b'x')
        time.sleep(1000)
    os._exit(1)
os.close(w)
print('traced by' if os.read(r, 1) else 'free of', child, 'now', flush=True)
os._exit(7)
`
	p := begin(t, b, sandbox.ExecSpec{Command: []string{"python3", "-c", traced}})
	var tracer int
	if said := until(t, p, "now"); !scan(said, "traced by %d now", &tracer) {
		t.Fatalf("the command said %q", said)
	}
	for i := range 10 {
		if said, errs, exit := command(t, b, sandbox.ExecSpec{Command: []string{"echo", fmt.Sprint(i)}}); said != fmt.Sprintln(i) || exit.Code != 0 {
			t.Errorf("echo %d beside a traced command said %q %q, %+v", i, said, errs, exit)
		}
	}
	say(t, b, fmt.Sprintf("kill -9 %d", tracer))
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 7 {
		t.Errorf("the traced command ended %+v, %v", exit, err)
	}
}

func scan(text, format string, into ...any) bool {
	n, err := fmt.Sscanf(text, format, into...)
	return err == nil && n == len(into)
}

// TestTripsAreTheGuestsOnly has programs ask for the system call that makes several,
// with calls that they may make, and also from a child that shares their memory: for
// them it is not there. One that gave calls up by a filter could make them that way.
func TestTripsAreTheGuestsOnly(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	const program = `
import ctypes, errno, struct
libc = ctypes.CDLL(None, use_errno=True)
call = struct.pack('5Q', 39, 0, 0, 0, 0)
for count in 1, 0, 33, 1 << 40:
    if libc.syscall(ctypes.c_long(1999), ctypes.c_char_p(call), ctypes.c_long(count)) != -1 or ctypes.get_errno() != errno.ENOSYS:
        print('made', count, ctypes.get_errno())
if libc.syscall(ctypes.c_long(1999), ctypes.c_long(8), ctypes.c_long(1)) != -1 or ctypes.get_errno() != errno.ENOSYS:
    print('looked at memory', ctypes.get_errno())
begin = __import__('time').monotonic()
for _ in range(200):
    libc.usleep(50)
if __import__('time').monotonic() - begin < 200 * 50e-6:
    print('slept too little')
`
	for _, user := range []string{"", "root"} {
		said, errs, exit := command(t, b, sandbox.ExecSpec{Command: []string{"python3", "-c", program}, User: user})
		if said != "" || errs != "" || exit.Code != 0 {
			t.Errorf("as %q said %q %q, %+v", user, said, errs, exit)
		}
	}
}
