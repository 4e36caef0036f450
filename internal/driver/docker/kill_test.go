package docker_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

const bomb = `import os, time
print("up", flush=True)
while True:
    try:
        if os.fork() == 0: pass
    except OSError: time.sleep(0.001)
`

// comet is a chain in which everybody forks and dies at once: nobody in it
// lives for longer than it takes to read a line of a list. On demand each also
// wakes everybody who was stopped.
const comet = `#include <unistd.h>
#include <stdlib.h>
#include <signal.h>
int main(int c, char **v) {
	int wakes = atoi(v[2]);
	for (int i = atoi(v[1]); i > 0; i--) {
		pid_t p;
		while ((p = fork()) < 0); // the others may have taken all there are
		if (p == 0) {
			write(1, "up\n", 3);
			for (;;) {
				if (fork() > 0) _exit(0);
				if (wakes) kill(-1, SIGCONT);
			}
		}
	}
	for (;;) pause();
}`

func TestForkBombIsBoundedAndKilled(t *testing.T) {
	t.Parallel()
	b := drivertest.Kept(t, opened(t), sandbox.Spec{Limits: sandbox.Limits{Processes: 64, Memory: 512 << 20, MilliCPU: 1000}})
	p, err := b.Exec(t.Context(), sandbox.ExecSpec{ID: "bomb", Command: []string{"python3", "-c", bomb}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	usage, err := b.Usage(t.Context())
	if err != nil || usage.Processes > 64+64 || usage.CPU <= 0 || usage.PeakMemory <= 0 {
		t.Errorf("usage %+v, %v", usage, err)
	}
	gone(t, b, p)
}

func TestChainsOfForksAreKilled(t *testing.T) {
	t.Parallel()
	for name, wakes := range map[string]string{"": "0", " that wake each other": "1"} {
		t.Run("chains"+name, func(t *testing.T) {
			t.Parallel()
			b := drivertest.Kept(t, opened(t), sandbox.Spec{Limits: sandbox.Limits{Processes: 256, Memory: 512 << 20}})
			p := fly(t, b, wakes)
			gone(t, b, p)
		})
	}
}

// fly starts chains and returns when all of them fly.
func fly(t *testing.T, b sandbox.Box, wakes string) sandbox.Process {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/comet.c", []byte(comet), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-static", "-O2", "-o", dir+"/comet", dir+"/comet.c").CombinedOutput(); err != nil {
		t.Fatalf("build the comet: %v\n%s", err, out)
	}
	program, err := os.ReadFile(dir + "/comet")
	if err != nil {
		t.Fatal(err)
	}
	putFile(t, b, "comet", program)
	const many = 8
	p, err := b.Exec(t.Context(), sandbox.ExecSpec{ID: "comet", Command: []string{"./comet", strconv.Itoa(many), wakes}})
	if err != nil {
		t.Fatal(err)
	}
	for up := 0; up < many; {
		f, err := p.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		up += strings.Count(string(f.Data), "up")
	}
	return p
}

// TestAKillLeavesOthersAsTheyWere has one who runs, one who forks all the time
// so that nothing is calm, and one who has stopped itself.
func TestAKillLeavesOthersAsTheyWere(t *testing.T) {
	t.Parallel()
	b := drivertest.Kept(t, opened(t), sandbox.Spec{Limits: sandbox.Limits{Processes: 256, Memory: 512 << 20}})
	const forks = `import os
while True:
    try: # the chains may have taken the last number
        if os.fork() == 0: os._exit(0)
        os.wait()
    except OSError: pass`
	for id, command := range map[string][]string{
		"runs":  {"sleep", "1001"},
		"forks": {"python3", "-c", forks, "forker"},
		"stops": {"sh", "-c", "kill -STOP $$; exec sleep 1002"},
	} {
		if _, err := b.Exec(t.Context(), sandbox.ExecSpec{ID: id, Command: command}); err != nil {
			t.Fatal(err)
		}
	}
	const states = `import glob
for p in glob.glob("/proc/[0-9]*"):
    try: args, state = open(p + "/cmdline").read().split("\0"), open(p + "/stat").read().rsplit(")", 1)[1].split()[0]
    except OSError: continue
    for who in ("1001", "forker", "kill -STOP $$; exec sleep 1002"):
        if who in args: print("stopped" if state == "T" else "awake", who.split()[-1])`
	look := func(id string) string {
		_, out := do(t, b, sandbox.ExecSpec{ID: id, Command: []string{"python3", "-c", states}})
		lines := strings.Split(strings.TrimSpace(out), "\n")
		slices.Sort(lines)
		return strings.Join(slices.Compact(lines), "; ")
	}
	const want = "awake 1001; awake forker; stopped 1002"
	for i := 0; look("before"+strconv.Itoa(i)) != want; i++ {
		if i > 100 {
			t.Fatalf("the bystanders did not start: %s", look("never"))
		}
	}
	p := fly(t, b, "0")
	if err := p.Signal(t.Context(), 9, true); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := look("after"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if n := sh(t, b, "cat /proc/[0-9]*/comm 2>/dev/null | grep -c comet"); n != "0\n" {
		t.Errorf("%s of the tree live on", n)
	}
}

// TestATreeWithoutItsFirstThreadIsKilled kills a process that looks dead.
func TestATreeWithoutItsFirstThreadIsKilled(t *testing.T) {
	t.Parallel()
	b := drivertest.Kept(t, opened(t), sandbox.Spec{})
	const headless = `import threading, time, ctypes
threading.Thread(target=lambda: (time.sleep(0.2), print("up", flush=True), time.sleep(1000))).start()
ctypes.CDLL(None).syscall(60, 0)`
	p, err := b.Exec(t.Context(), sandbox.ExecSpec{ID: "headless", Command: []string{"python3", "-c", headless}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(t.Context(), 9, true); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	exit, err := p.Wait(ctx)
	if err != nil || exit.Signal != 9 || exit.Lost {
		t.Errorf("%+v, %v", exit, err)
	}
	if out := sh(t, b, "echo here"); out != "here\n" {
		t.Errorf("the sandbox went with it: %q", out)
	}
}

// gone kills the tree and looks whether any of it is left. Who forks and dies
// at once cannot be seen in a list, but uses up process numbers.
func gone(t *testing.T, b sandbox.Box, p sandbox.Process) {
	t.Helper()
	if err := p.Signal(t.Context(), 9, true); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	const numbers = `import time
last = lambda: int(open("/proc/loadavg").read().split()[4])
before = last(); time.sleep(0.5); print(last() - before)`
	_, out := do(t, b, sandbox.ExecSpec{ID: "numbers", Command: []string{"python3", "-c", numbers}})
	const ours = 10 // threads that the guest may start meanwhile
	if used, err := strconv.Atoi(strings.TrimSpace(out)); err != nil || used > ours {
		t.Errorf("%q process numbers were used after the tree was killed", out)
	}
	deadline := time.Now().Add(30 * time.Second)
	for strings.TrimSpace(sh(t, b, "cat /proc/[0-9]*/comm 2>/dev/null | grep -c python")) != "0" {
		if time.Now().After(deadline) {
			t.Fatal("some of the tree live on")
		}
	}
}
