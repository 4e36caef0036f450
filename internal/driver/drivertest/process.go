package drivertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

const (
	sigTerm = 15
	sigKill = 9
)

// processChecks are the sentences on processes and their exits.
func processChecks() []check {
	return []check{
		{"Exec returns as soon as the process was started", execReturns},
		{"a program that does not exist exits with 127", missingProgram},
		{"a program that is not executable exits with 126", notExecutable},
		{"a name without a slash is looked up in PATH", looksUpPath},
		{"each process has the id that it was given, and a taken id is a Conflict", processIDs},
		{"an exec without a command is refused", noCommand},
		{"Attach to an unknown id is NotFound", attachUnknown},
		{"a non-zero exit is an Exit and not an error", exitCodes},
		{"an end by a signal is an Exit and not an error", exitSignal},
		{"running out of memory is an Exit and not an error", exitOOM},
		{"Wait may be called many times and gives the same Exit", waitMany},
		{"a ctx bounds Wait and never the process", waitCtx},
		{"a grandchild that holds the pipe does not hold up Wait", grandchild},
		{"a grandchild that holds the terminal does not hold up the end of the output", grandchildOfTerminal},
		{"what a grandchild writes after the end is dropped, and it can go on", afterTheEnd},
		{"signal 9 with tree ends the process and all of its descendants", killTree},
		{"signal 9 with tree is idempotent", killTwice},
		{"signal 9 with tree hits no other command, also after the end", killEnded},
		{"a signal without tree ends the process alone", signalAlone},
		{"what is written comes in on standard input", input},
		{"without Stdin the standard input is empty", noInput},
		{"the environment of the exec lies over that of the sandbox", environment},
		{"a process starts in /workspace, or where it is told", workingDir},
	}
}

func execReturns(r *rig) {
	b := r.box()
	p := r.exec(b, r.sh("sleep 100000"))
	select {
	case <-b.Done():
		r.Error("the sandbox is done")
	default:
	}
	if err := p.Signal(r.ctx, sigKill, true); err != nil {
		r.Errorf("kill: %v", err)
	}
}

func missingProgram(r *rig) {
	b := r.box()
	spec := r.sh("")
	spec.Command = []string{"/no/such/program"}
	if exit, out := r.run(b, spec); exit.Code != 127 || !strings.Contains(out.stderr, "/no/such/program") {
		r.Errorf("exit %+v after %q, want code 127 and a word about it", exit, out)
	}
	r.say(b, "true")
}

func notExecutable(r *rig) {
	b := r.box()
	if err := b.Put(r.ctx, "/workspace", bytes.NewReader(tarOf(r, file("plain", "no program")))); err != nil {
		r.Fatalf("put: %v", err)
	}
	spec := r.sh("")
	spec.Command = []string{"/workspace/plain"}
	if exit, out := r.run(b, spec); exit.Code != 126 || !strings.Contains(out.stderr, "/workspace/plain") {
		r.Errorf("exit %+v after %q, want code 126 and a word about it", exit, out)
	}
}

func looksUpPath(r *rig) {
	b := r.box()
	program := entry{name: "hello", mode: 0o755, data: "#!/bin/sh\necho hello from PATH\n"}
	if err := b.Put(r.ctx, "/workspace/programs", bytes.NewReader(tarOf(r, program))); err != nil {
		r.Fatalf("put: %v", err)
	}
	spec := r.sh("")
	spec.Command = []string{"hello"}
	spec.Env = map[string]string{"PATH": "/no/such/folder:/workspace/programs"}
	exit, out := r.run(b, spec)
	if exit.Code != 0 || out.stdout != "hello from PATH\n" {
		r.Errorf("exit %+v after %q", exit, out)
	}
	spec.ID, spec.Env = r.newID(), map[string]string{"PATH": "/no/such/folder"}
	if exit, _ := r.run(b, spec); exit.Code != 127 {
		r.Errorf("exit %+v with a PATH that does not lead there, want code 127", exit)
	}
}

func processIDs(r *rig) {
	b := r.box()
	spec := r.sh("exit 0")
	spec.ID = "Exec-1-" + spec.ID
	p := r.exec(b, spec)
	r.wantText("id", p.ID(), spec.ID)
	_, err := b.Exec(r.ctx, spec)
	r.wantKind("an exec with a taken id", err, fault.Conflict)
	r.wait(p)
	_, err = b.Exec(r.ctx, spec)
	r.wantKind("an exec with the id of one that has ended", err, fault.Conflict)
}

func noCommand(r *rig) {
	b := r.box()
	spec := r.sh("")
	spec.Command = nil
	_, err := b.Exec(r.ctx, spec)
	r.wantKind("an exec without a command", err, fault.Invalid)
}

func attachUnknown(r *rig) {
	_, err := r.box().Attach(r.ctx, "nobody", sandbox.Offsets{})
	r.wantKind("attach", err, fault.NotFound)
}

func exitCodes(r *rig) {
	b := r.box()
	for _, code := range []int{0, 1, 42, 255} {
		exit, _ := r.run(b, r.sh("exit "+strconv.Itoa(code)))
		if exit.Code != code || exit.Signal != 0 || exit.OOM || exit.Lost || exit.Ended.IsZero() {
			r.Errorf("exit %+v, want code %d and a time", exit, code)
		}
	}
}

func exitSignal(r *rig) {
	b := r.box()
	exit, _ := r.run(b, r.sh("kill -TERM $$; sleep 100000"))
	if exit.Signal != sigTerm || exit.Code != -1 || exit.OOM || exit.Lost {
		r.Errorf("exit %+v, want signal %d and code -1", exit, sigTerm)
	}
}

func exitOOM(r *rig) {
	r.need(r.d.Capabilities().Memory && r.h.OOM != nil, "a memory limit, or its harness has no program for it")
	const limit = 64 << 20
	spec := r.spec()
	spec.Limits.Memory = limit
	b := r.create(spec)
	greedy := r.h.OOM(limit)
	greedy.ID = r.newID()
	exit, _ := r.run(b, greedy)
	if !exit.OOM || exit.Code == 0 {
		r.Errorf("exit %+v, want out of memory", exit)
	}
}

func waitMany(r *rig) {
	b := r.box()
	spec := r.sh("cat; exit 9")
	spec.Stdin = true
	p := r.exec(b, spec)
	exits := make(chan sandbox.Exit, 4)
	var group sync.WaitGroup
	for range cap(exits) {
		group.Go(func() {
			exit, err := p.Wait(r.ctx)
			if err != nil {
				r.Errorf("wait before the end: %v", err)
			}
			exits <- exit
		})
	}
	if err := p.CloseInput(r.ctx); err != nil {
		r.Fatalf("close input: %v", err)
	}
	group.Wait()
	after := r.wait(p)
	for range cap(exits) {
		if before := <-exits; !sameExit(before, after) || after.Code != 9 {
			r.Errorf("exit %+v, and later %+v", before, after)
		}
	}
	again, err := b.Attach(r.ctx, p.ID(), sandbox.Offsets{})
	if err != nil {
		r.Fatalf("attach after the end: %v", err)
	}
	if exit := r.wait(again); !sameExit(exit, after) {
		r.Errorf("exit %+v by attaching, and %+v before", exit, after)
	}
}

func sameExit(a, b sandbox.Exit) bool {
	sameTime := a.Ended.Equal(b.Ended)
	a.Ended = b.Ended
	return sameTime && a == b
}

func waitCtx(r *rig) {
	b := r.box()
	spec := r.sh("cat; exit 2")
	spec.Stdin = true
	p := r.exec(b, spec)
	over := errors.New("the call is over")
	ctx, cancel := context.WithCancelCause(r.ctx)
	cancel(over)
	if _, err := p.Wait(ctx); err == nil {
		r.Error("wait returned an exit of a process that runs")
	}
	if err := p.CloseInput(r.ctx); err != nil {
		r.Fatalf("close input: %v", err)
	}
	if exit := r.wait(p); exit.Code != 2 {
		r.Errorf("exit %+v, want code 2", exit)
	}
}

func grandchild(r *rig) {
	b := r.box()
	p := r.exec(b, r.sh("sleep 100000 & echo parent; exit 7"))
	if exit := r.wait(p); exit.Code != 7 {
		r.Errorf("exit %+v, want code 7", exit)
	}
	r.wantText("output", r.collect(p, sandbox.Offsets{}).stdout, "parent\n")
	if err := p.Signal(r.ctx, sigKill, true); err != nil {
		r.Errorf("kill what is left: %v", err)
	}
}

func afterTheEnd(r *rig) {
	b := r.box()
	for name, first := range map[string]string{"at-once": "", "after-a-while": "sleep 0.1; "} {
		p := r.exec(b, r.sh("sleep 0.2 && echo late && echo x > "+name+" & "+first+"echo parent; exit 7"))
		r.wait(p)
		r.eventually("the grandchild goes on behind its word", func() bool { return b.Get(r.ctx, "/workspace/"+name, io.Discard) == nil })
		r.say(b, "true")
		again, err := b.Attach(r.ctx, p.ID(), sandbox.Offsets{})
		if err != nil {
			r.Fatalf("attach: %v", err)
		}
		for _, reader := range []sandbox.Process{p, again} {
			r.wantText("output", r.collect(reader, sandbox.Offsets{}).stdout, "parent\n")
		}
	}
}

func grandchildOfTerminal(r *rig) {
	r.need(r.d.Capabilities().TTY, "a terminal")
	b := r.box()
	spec := r.sh("sleep 100000 & echo parent; exit 7")
	spec.TTY = true
	p := r.exec(b, spec)
	if exit := r.wait(p); exit.Code != 7 {
		r.Errorf("exit %+v, want code 7", exit)
	}
	r.wantText("output", strings.TrimSpace(r.collect(p, sandbox.Offsets{}).stdout), "parent")
	if err := p.Signal(r.ctx, sigKill, true); err != nil {
		r.Errorf("kill what is left: %v", err)
	}
}

// mark is a time to sleep that nobody else sleeps.
const mark = "98765"

// alive counts the sleepers, or says that it cannot.
func (r *rig) alive(b sandbox.Box) (int64, bool) {
	r.Helper()
	if r.h.Alive != "" {
		spec := r.sh(r.h.Alive)
		spec.Env = map[string]string{"MARK": mark}
		exit, out := r.run(b, spec)
		n, err := strconv.ParseInt(strings.TrimSpace(out.stdout), 10, 64)
		if exit.Code != 0 || err != nil {
			r.Fatalf("count processes: %+v, %q", exit, out)
		}
		return n, true
	}
	usage, err := b.Usage(r.ctx)
	if err != nil {
		r.Fatalf("usage: %v", err)
	}
	return usage.Processes, usage.Processes >= 0
}

func killTree(r *rig) {
	b := r.box()
	before, counts := r.alive(b)
	r.need(counts, "a count of processes")
	p := r.exec(b, r.sh("sleep "+mark+" & sleep "+mark+" & echo up; wait"))
	r.until(p, "up")
	r.eventually("two sleepers run", func() bool { n, _ := r.alive(b); return n >= before+2 })
	if err := p.Signal(r.ctx, sigKill, true); err != nil {
		r.Fatalf("kill: %v", err)
	}
	if exit := r.wait(p); exit.Signal != sigKill {
		r.Errorf("exit %+v, want signal 9", exit)
	}
	r.eventually("all sleepers are dead", func() bool { n, _ := r.alive(b); return n <= before })
}

// killEnded is about those that have ended: what they left is killed, and nothing
// that was started since.
func killEnded(r *rig) {
	b := r.box()
	before, counts := r.alive(b)
	r.need(counts, "a count of processes")
	for _, script := range []string{"true", "sleep " + mark + " >/dev/null 2>&1 & true"} {
		ended := r.exec(b, r.sh(script))
		if exit := r.wait(ended); exit.Code != 0 {
			r.Fatalf("%q ended with %+v", script, exit)
		}
		spec := r.sh("cat")
		spec.Stdin = true
		next := r.exec(b, spec)
		if err := ended.Signal(r.ctx, sigKill, true); err != nil {
			r.Errorf("kill what has ended: %v", err)
		}
		if err := next.Write(r.ctx, []byte("alive\n")); err != nil {
			r.Errorf("one that was started after %q had ended: %v", script, err)
		}
		r.until(next, "alive\n")
		if err := next.CloseInput(r.ctx); err != nil {
			r.Errorf("close the input: %v", err)
		}
		if exit := r.wait(next); exit.Code != 0 {
			r.Errorf("one that was started after %q had ended: %+v", script, exit)
		}
		r.eventually("nothing is left", func() bool { n, _ := r.alive(b); return n <= before })
	}
}

func killTwice(r *rig) {
	b := r.box()
	p := r.exec(b, r.sh("echo up; sleep 100000"))
	r.until(p, "up")
	for range 2 {
		if err := p.Signal(r.ctx, sigKill, true); err != nil {
			r.Errorf("kill: %v", err)
		}
	}
	first := r.wait(p)
	if err := p.Signal(r.ctx, sigKill, true); err != nil {
		r.Errorf("kill after the end: %v", err)
	}
	if second := r.wait(p); !sameExit(first, second) || first.Signal != sigKill {
		r.Errorf("exit %+v, and after another kill %+v", first, second)
	}
}

func signalAlone(r *rig) {
	b := r.box()
	before, counts := r.alive(b)
	r.need(counts, "a count of processes")
	p := r.exec(b, r.sh("sleep "+mark+" & echo up; wait"))
	r.until(p, "up")
	r.eventually("the sleeper runs", func() bool { n, _ := r.alive(b); return n >= before+1 })
	if err := p.Signal(r.ctx, sigTerm, false); err != nil {
		r.Fatalf("signal: %v", err)
	}
	if exit := r.wait(p); exit.Signal != sigTerm {
		r.Errorf("exit %+v, want signal %d", exit, sigTerm)
	}
	for range 3 { // a descendant that was hit may take a moment to go
		r.say(b, "true")
		if n, _ := r.alive(b); n < before+1 {
			r.Fatal("the descendant got the signal too")
		}
	}
	if err := p.Signal(r.ctx, sigKill, true); err != nil {
		r.Errorf("kill what is left: %v", err)
	}
}

func input(r *rig) {
	b := r.box()
	spec := r.sh("cat")
	spec.Stdin = true
	p := r.exec(b, spec)
	for _, piece := range []string{"one ", "", "two\n"} {
		if err := p.Write(r.ctx, []byte(piece)); err != nil {
			r.Fatalf("write: %v", err)
		}
	}
	r.until(p, "one two\n")
	for range 2 {
		if err := p.CloseInput(r.ctx); err != nil {
			r.Fatalf("close input: %v", err)
		}
	}
	if exit := r.wait(p); exit.Code != 0 {
		r.Errorf("exit %+v", exit)
	}
}

func noInput(r *rig) {
	b := r.box()
	exit, out := r.run(b, r.sh("cat; echo end"))
	if exit.Code != 0 || out.stdout != "end\n" {
		r.Errorf("exit %+v after %q", exit, out)
	}
}

func environment(r *rig) {
	spec := r.spec()
	spec.Env = map[string]string{"ONE": "sandbox", "TWO": "sandbox"}
	b := r.create(spec)
	exec := r.sh(`echo "$ONE $TWO $THREE"; printenv TWO`)
	exec.Env = map[string]string{"TWO": "exec", "THREE": "a=b c"}
	_, out := r.run(b, exec)
	r.wantText("variables", out.stdout, "sandbox exec a=b c\nexec\n")
}

func workingDir(r *rig) {
	b := r.box()
	r.wantText("default folder", r.say(b, "pwd"), "/workspace")
	r.say(b, "mkdir -p /workspace/deep/er")
	spec := r.sh("pwd")
	spec.Dir = "/workspace/deep/er"
	_, out := r.run(b, spec)
	r.wantText("given folder", out.stdout, "/workspace/deep/er\n")
}
