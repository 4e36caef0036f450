package gvisor_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/cgroup"
	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/driver/gvisor"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// limited makes a sandbox with limits that is destroyed at the end of the test.
func limited(t *testing.T, limits sandbox.Limits) sandbox.Box {
	t.Helper()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := drivertest.Create(t, d, sandbox.Spec{Limits: limits})
	t.Cleanup(func() { drivertest.Destroy(t, d, b) })
	return b
}

// hungry is a command that takes more and more memory, up to a bound.
func hungry(megabytes int) sandbox.ExecSpec {
	return sandbox.ExecSpec{Command: []string{"python3", "-c", fmt.Sprintf("x=[]\nfor i in range(%d): x.append(bytearray(b'x'*(1<<20)))\nprint('had it all')", megabytes)}}
}

// Running out of memory ends the sandbox, and every command in it by that.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	b := limited(t, sandbox.Limits{Memory: 96 << 20})
	bystander := begin(t, b, sandbox.ExecSpec{Command: []string{"sh", "-c", "echo up; sleep 1000"}})
	until(t, bystander, "up")
	out, _, exit := command(t, b, hungry(500))
	if !exit.OOM || exit.Lost || strings.Contains(out, "all") {
		t.Errorf("the hungry one: %+v, %q", exit, out)
	}
	if exit, err := bystander.Wait(t.Context()); err != nil || !exit.OOM {
		t.Errorf("the bystander: %+v, %v", exit, err)
	}
	<-b.Done()
	u, err := b.Usage(t.Context())
	if err != nil || u.PeakMemory < 64<<20 || u.PeakMemory > 97<<20 || u.CPU <= 0 {
		t.Errorf("usage after the end: %+v, %v", u, err)
	}
}

// Memory within the limit is there, and its use is measured.
func TestWithinMemory(t *testing.T) {
	t.Parallel()
	b := limited(t, sandbox.Limits{Memory: 256 << 20})
	if out, errs, exit := command(t, b, hungry(100)); exit.Code != 0 {
		t.Errorf("%+v, %q %q", exit, out, errs)
	}
	if u, err := b.Usage(t.Context()); err != nil || u.PeakMemory < 100<<20 || u.PeakMemory > 256<<20 {
		t.Errorf("%+v, %v", u, err)
	}
	if got := say(t, b, "grep MemTotal /proc/meminfo | tr -dc 0-9"); got != "262144" {
		t.Errorf("programs see %s kB of memory", got)
	}
}

// More processes than allowed are refused, and neither the sandbox nor the
// guest is hurt, whoever asks for them.
func TestProcessLimit(t *testing.T) {
	t.Parallel()
	b := limited(t, sandbox.Limits{Processes: 20})
	const bomb = `
import os, sys, time
n = 0
try:
    while n < 1000:
        if os.fork() == 0:
            time.sleep(1000)
        n += 1
except OSError as e:
    print("stopped", e.errno, flush=True)
print(n, flush=True)
time.sleep(1000)`
	p := begin(t, b, sandbox.ExecSpec{Command: []string{"python3", "-c", bomb}})
	if said := until(t, p, "\n19\n"); !strings.Contains(said, "stopped 11") {
		t.Errorf("%q", said)
	}
	// Another user's are counted too.
	exits := 0
	for _, user := range []string{"root", "1234"} {
		_, err := b.Exec(context.Background(), sandbox.ExecSpec{ID: "as" + user, Command: []string{"true"}, User: user})
		if err == nil {
			exits++
		}
	}
	if exits > 0 {
		t.Errorf("%d commands were started beyond the limit", exits)
	}
	if err := p.Signal(t.Context(), 9, true); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Signal != 9 {
		t.Errorf("%+v, %v", exit, err)
	}
	eventually(t, "there is room again", func() bool {
		_, err := b.Exec(context.Background(), sandbox.ExecSpec{ID: "again", Command: []string{"true"}})
		return err == nil || fault.Is(err, fault.Conflict)
	})
}

// One limit holds all that can be written, wherever it is.
func TestDiskLimit(t *testing.T) {
	t.Parallel()
	b := limited(t, sandbox.Limits{Disk: 16 << 20, Memory: 128 << 20})
	for _, dir := range []string{"/workspace", "/tmp"} {
		got := say(t, b, "head -c 40000000 /dev/zero >"+dir+"/big; stat -c %s "+dir+"/big; rm "+dir+"/big")
		if !strings.Contains(got, "No space left on device") || !strings.Contains(got, "1677") {
			t.Errorf("%s: %q", dir, got)
		}
	}
	if got := say(t, b, "head -c 10000000 /dev/zero >/tmp/a; head -c 10000000 /dev/zero >/workspace/b; rm /tmp/a /workspace/b"); !strings.Contains(got, "No space") {
		t.Errorf("two halves: %q", got)
	}
	if got := say(t, b, "echo still here"); got != "still here" {
		t.Errorf("%q", got)
	}
}

// What is written takes disk and not memory.
func TestDiskIsNotMemory(t *testing.T) {
	t.Parallel()
	b := limited(t, sandbox.Limits{Disk: 512 << 20, Memory: 96 << 20})
	if got := say(t, b, "head -c 300000000 /dev/zero >big && stat -c %s big"); got != "300000000" {
		t.Errorf("%q", got)
	}
}

func TestOpenFilesLimit(t *testing.T) {
	t.Parallel()
	b := limited(t, sandbox.Limits{OpenFiles: 64})
	const many = `
import os, resource
n = 0
try:
    while n < 1000:
        os.open("/", 0)
        n += 1
except OSError as e:
    print("stopped", e.errno, n)
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000))
except (ValueError, OSError):
    print("no more")`
	out, errs, _ := command(t, b, sandbox.ExecSpec{Command: []string{"python3", "-c", many}})
	if out != "stopped 24 61\nno more\n" {
		t.Errorf("%q %q", out, errs)
	}
}

// A share of a processor is not more than that.
func TestCPULimit(t *testing.T) {
	t.Parallel()
	b := limited(t, sandbox.Limits{MilliCPU: 200})
	start := time.Now()
	before, err := b.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := say(t, b, "python3 -c 'import time\nt=time.monotonic()\nwhile time.monotonic()-t<2: pass'"); got != "" {
		t.Error(got)
	}
	after, err := b.Usage(t.Context())
	if err != nil || after.CPU <= before.CPU {
		t.Fatalf("%+v, %v", after, err)
	}
	// Whatever else the machine does, it is never more than its share; a first
	// period may have been begun before the limit was met.
	const share, slack = 5, 200 * time.Millisecond
	if used, most := after.CPU-before.CPU, time.Since(start)/share+slack; used > most {
		t.Errorf("%v of a processor's time in %v", used, time.Since(start))
	}
}

// Limits below what a sandbox needs for itself are refused, before anything.
func TestLimitsTooSmall(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	for _, l := range []sandbox.Limits{{Memory: 1 << 20}, {OpenFiles: 3}, {Disk: 1000}, {MilliCPU: 1}} {
		_, err := d.Create(t.Context(), sandbox.Spec{ID: "small", Limits: l}, func(sandbox.Handle) error {
			t.Errorf("%+v was reported", l)
			return nil
		})
		if !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != "limit_too_small" {
			t.Errorf("%+v: %v", l, err)
		}
	}
	// The least that is allowed is enough to start.
	b := drivertest.Create(t, d, sandbox.Spec{Limits: sandbox.Limits{Memory: 48 << 20, MilliCPU: 100, Disk: 1 << 20, OpenFiles: 64, Processes: 1}})
	t.Cleanup(func() { drivertest.Destroy(t, d, b) })
	if out, errs, exit := command(t, b, sandbox.ExecSpec{Command: []string{"echo", "hello"}}); out != "hello\n" {
		t.Errorf("%q %q %+v", out, errs, exit)
	}
}

// Where the host has no control groups, what they would hold is not declared
// and refused; the rest holds, and nothing else changes.
func TestHostWithoutGroups(t *testing.T) {
	t.Parallel()
	needRoot(t)
	d := openWith(t, gvisor.Config{StateDir: stateDir(t), HostRoot: t.TempDir()})
	t.Cleanup(func() { d.Close() })
	c := d.Capabilities()
	if c.CPU || c.Memory || !c.Processes || !c.Disk || !c.OpenFiles || d.Lacks()["memory"] == "" {
		t.Errorf("%+v, %v", c, d.Lacks())
	}
	_, err := d.Create(t.Context(), sandbox.Spec{ID: "x", Limits: sandbox.Limits{Memory: 1 << 30}}, func(sandbox.Handle) error { return nil })
	if !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != "limit_unenforceable" {
		t.Errorf("%v", err)
	}
	b := drivertest.Create(t, d, sandbox.Spec{Limits: sandbox.Limits{Processes: 20}})
	t.Cleanup(func() { drivertest.Destroy(t, d, b) })
	if got := say(t, b, "echo hello"); got != "hello" {
		t.Errorf("%q", got)
	}
	if u, err := b.Usage(t.Context()); err != nil || u != (sandbox.Usage{CPU: -1, Memory: -1, PeakMemory: -1, Processes: -1}) {
		t.Errorf("%+v, %v", u, err)
	}
}

// Groups that nobody has a sandbox for go when a driver starts; those of live
// sandboxes stay, also for a driver that finds them anew.
func TestGroupsAreSweptAndFound(t *testing.T) {
	t.Parallel()
	folder := stateDir(t)
	d := open(t, folder)
	b := drivertest.Create(t, d, sandbox.Spec{Limits: sandbox.Limits{Memory: 96 << 20}})
	owner, err := os.ReadFile(filepath.Join(folder, "owner"))
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	stray, err := cgroup.Open("/", string(owner))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stray.Make("stray", cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	stray.Close()
	d = open(t, folder)
	t.Cleanup(func() { d.Close() })
	for _, path := range groupsOf(string(owner)) {
		if filepath.Base(path) == "stray" {
			t.Errorf("%s is left", path)
		}
	}
	again, err := d.Recover(t.Context(), b.Handle())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { drivertest.Destroy(t, d, again) })
	if again.Enforced() != (sandbox.Limits{Memory: 96 << 20}) {
		t.Errorf("%+v", again.Enforced())
	}
	// Its limit still holds, and is still seen to.
	if _, _, exit := command(t, again, hungry(500)); !exit.OOM {
		t.Errorf("%+v", exit)
	}
}
