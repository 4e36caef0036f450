package inside

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// marked starts a shell with a mark of its own, as nobody, and returns the
// mark and what the shell says first.
func marked(t *testing.T, m *marks, script string) (mark uint32, said string) {
	t.Helper()
	attr := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Setsid: true}
	tree, planted, err := m.plant(attr)
	if err != nil {
		t.Fatal(err)
	}
	defer planted()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{
		Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Files: []uintptr{w.Fd(), w.Fd(), w.Fd()}, Sys: attr,
	})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.ParseUint(tree, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = m.kill(uint32(gid))
		_, _ = unix.Wait4(pid, nil, 0, nil)
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return uint32(gid), strings.TrimSpace(line)
}

// alive counts who bears the mark.
func alive(t *testing.T, m *marks, mark uint32) int {
	t.Helper()
	found, err := m.visit(mark, func(int) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func rootMarks(t *testing.T) *marks {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("giving a process a group needs root")
	}
	m, err := newMarks()
	if err != nil {
		t.Fatal(err)
	}
	// Other tests and other runs have marks of their own on the same machine.
	name := fnv.New32a()
	_, _ = fmt.Fprint(name, t.Name(), os.Getpid(), time.Now().UnixNano())
	m.next = name.Sum32() % (countMarks / 2)
	// Everybody would be the machine's, and its processes come and go.
	m.everybody = func(syscall.Signal) error { return errors.New("everybody was signalled") }
	m.newest = func() (string, error) { return "", nil }
	return m
}

func TestMarksFindWhoHidesFromItsParent(t *testing.T) {
	t.Parallel()
	m := rootMarks(t)
	hidden := "(setsid sh -c '(sleep 1000 & sleep 1000 & wait) & sleep 1000' >/dev/null 2>&1 &); sleep 0.3; echo up; sleep 1000"
	mark, _ := marked(t, m, hidden)
	other, _ := marked(t, m, "echo up; sleep 1000")
	if n := alive(t, m, mark); n < 5 {
		t.Fatalf("%d processes bear the mark, want all of the tree", n)
	}
	if err := m.signal(strconv.Itoa(int(mark)), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); alive(t, m, mark) > 0; {
		if time.Now().After(deadline) {
			t.Fatal("some of the tree live on")
		}
		time.Sleep(time.Millisecond)
	}
	if n := alive(t, m, other); n == 0 {
		t.Error("the other command was killed too")
	}
	// Also what is long over can be killed.
	if err := m.signal(strconv.Itoa(int(mark)), unix.SIGKILL); err != nil {
		t.Error(err)
	}
}

func TestMarksSendOtherSignalsToAll(t *testing.T) {
	t.Parallel()
	m := rootMarks(t)
	mark, _ := marked(t, m, "(setsid sleep 1000 &); sleep 0.2; echo up; exec sleep 1000")
	if err := m.signal(strconv.Itoa(int(mark)), unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); alive(t, m, mark) > 0; {
		if time.Now().After(deadline) {
			t.Fatal("the signal did not reach all")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestMarksRefuseRootAndTheirOwnGroups(t *testing.T) {
	t.Parallel()
	m := &marks{first: 100, count: 10, proc: "/proc"}
	for _, c := range []syscall.Credential{{Uid: 0, Gid: 1}, {Uid: 1, Gid: 100}, {Uid: 1, Gid: 109}} {
		_, _, err := m.plant(&syscall.SysProcAttr{Credential: &c})
		var refused *refusal
		if !errors.As(err, &refused) {
			t.Errorf("%+v was not refused: %v", c, err)
		}
	}
}

func TestMarksAreNotGivenTwice(t *testing.T) {
	t.Parallel()
	m := rootMarks(t)
	m.first, m.count, m.next = firstMark+countMarks, 4, 0 // behind all others
	_, _ = marked(t, m, "echo up; sleep 1000")
	seen := map[string]int{}
	for range 3 * m.count {
		tree, done, err := m.plant(&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1, Gid: 1}})
		if err != nil {
			t.Fatal(err)
		}
		done()
		seen[tree]++
	}
	if n := seen[strconv.Itoa(int(m.first))]; n != 0 {
		t.Errorf("the mark of a living command was given %d times", n)
	}
}

func TestStatusOfAProcess(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"Name:\tx\nState:\tS (sleeping)\nGroups:\t7 77 \nThreads:\t1\n":   true,
		"Name:\tx\nState:\tT (stopped)\nGroups:\t77 \nThreads:\t1\n":      true,
		"Name:\tx\nState:\tS (sleeping)\nGroups:\t177 78 \nThreads:\t1\n": false,
		"Name:\tx\nState:\tZ (zombie)\nGroups:\t77 \nThreads:\t1\n":       false,
		"Name:\tx\nState:\tZ (zombie)\nGroups:\t77 \nThreads:\t2\n":       true,
		"Name:\tx\nState:\tX (dead)\nGroups:\t77 \n":                      false,
		"Name:\tGroups:\t77\nState:\tR\nGroups:\t\n":                      false,
		"State:\nGroups": false,
		"":               false,
	} {
		s := parseStatus([]byte(text))
		if got := s.runs() && s.bears(77); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestHuntTrustsNoListDuringABirth gives it numbers as the kernel might.
func TestHuntTrustsNoListDuringABirth(t *testing.T) {
	t.Parallel()
	for numbers, want := range map[string]struct {
		done   bool
		passes int
	}{
		"aa aa":       {true, 2},
		"aa bb bb":    {true, 3},
		"ab bb bb":    {true, 3},
		"ab bc cd":    {false, 3},
		"aa bb cc":    {false, 3},
		"aa ab bb bb": {true, 4},
	} {
		said := strings.ReplaceAll(numbers, " ", "")
		held := 0
		m := &marks{proc: t.TempDir(), newest: func() (string, error) {
			next := said[:1]
			said = said[1:]
			return next, nil
		}}
		done, err := m.hunt(77, len(said)/2, func() error { held++; return nil })
		if err != nil || done != want.done || held != want.passes {
			t.Errorf("%s: done %v after %d passes, %v", numbers, done, held, err)
		}
	}
}

// TestKillEndsInTheLastResort has processes born without end.
func TestKillEndsInTheLastResort(t *testing.T) {
	t.Parallel()
	n := 0
	var sent []syscall.Signal
	m := &marks{
		proc:      t.TempDir(),
		newest:    func() (string, error) { n++; return strconv.Itoa(n), nil },
		everybody: func(s syscall.Signal) error { sent = append(sent, s); return nil },
	}
	if err := m.kill(77); err != nil {
		t.Fatal(err)
	}
	if len(sent) != heldPasses+2 || sent[0] != unix.SIGSTOP || sent[heldPasses+1] != unix.SIGKILL {
		t.Errorf("%v", sent)
	}
}

func TestIDMap(t *testing.T) {
	t.Parallel()
	if !mapped([]byte("         0          0 4294967295\n"), firstMark+countMarks-1) {
		t.Error("everything is mapped")
	}
	if mapped([]byte("0 100000 65536\n"), firstMark) || !mapped([]byte("0 100000 65536\n"), firstMapped+countSmall-1) {
		t.Error("65536 are mapped")
	}
}
