package drivertest

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// adoptChecks are the sentences on what a later process can do with a handle.
// Each closes a driver of its own, which stands for the end of a worker.
func adoptChecks() []check {
	return []check{
		{"a later process adopts a live sandbox and its files", adoptFiles},
		{"a later process attaches to a running process", adoptRunning},
		{"a later process attaches to a terminal", adoptTerminal},
		{"a later process learns how a process ended", adoptEnded},
		{"a later process destroys by the handle alone", adoptDestroy},
		{"a later process lists what an earlier one made", adoptList},
		{"a later process learns that memory ran out meanwhile", adoptOOM},
	}
}

// restart lets prepare work with a driver of its own, closes that, and returns
// a rig with the driver that follows it.
func (r *rig) restart(prepare func(first *rig)) *rig {
	r.Helper()
	r.need(r.d.Capabilities().Recover, "recovery")
	state := folder(r.T)
	first := newRig(r.T, r.h, r.h.Open(r.T, state))
	prepare(first)
	if err := first.d.Close(); err != nil {
		r.Fatalf("close: %v", err)
	}
	second := newRig(r.T, r.h, r.h.Open(r.T, state))
	r.Cleanup(func() { closeEmpty(r.T, second.d) })
	return second
}

// written is a handle as a worker finds it in its records.
func (r *rig) written(h sandbox.Handle) sandbox.Handle {
	r.Helper()
	text, err := json.Marshal(h)
	if err != nil {
		r.Fatal(err)
	}
	var read sandbox.Handle
	if err := json.Unmarshal(text, &read); err != nil {
		r.Fatal(err)
	}
	return read
}

// early makes a sandbox that is not destroyed by the driver that made it.
func (r *rig) early() sandbox.Box {
	r.Helper()
	b, err := r.d.Create(r.ctx, r.spec(), noReport)
	if err != nil {
		r.Fatalf("create: %v", err)
	}
	return b
}

func (r *rig) adopt(h sandbox.Handle) sandbox.Box {
	r.Helper()
	if err := r.sweep(h); err != nil {
		r.Fatal(err)
	}
	b, err := r.d.Recover(r.ctx, h)
	if err != nil {
		r.Fatalf("recover: %v", err)
	}
	return b
}

func adoptFiles(r *rig) {
	var h sandbox.Handle
	later := r.restart(func(first *rig) {
		b := first.early()
		h = first.written(b.Handle())
		if err := b.Put(first.ctx, "/workspace", bytes.NewReader(tarOf(first, file("put.txt", "put")))); err != nil {
			first.Fatalf("put: %v", err)
		}
		first.say(b, "echo made > made.txt; echo more >> made.txt")
	})
	b := later.adopt(h)
	later.wantText("files", later.say(b, "cat put.txt made.txt"), "putmade\nmore")
}

func adoptRunning(r *rig) {
	var h sandbox.Handle
	var id string
	var at sandbox.Offsets
	later := r.restart(func(first *rig) {
		b := first.early()
		h = first.written(b.Handle())
		spec := first.sh("echo one; echo error 1>&2; cat; exit 5")
		spec.Stdin = true
		p := first.exec(b, spec)
		id, at = p.ID(), first.until(p, "one\n")
	})
	b := later.adopt(h)
	p, err := b.Attach(later.ctx, id, sandbox.Offsets{Stdout: at.Stdout})
	if err != nil {
		later.Fatalf("attach: %v", err)
	}
	if err := p.Write(later.ctx, []byte("two\n")); err != nil {
		later.Fatalf("write: %v", err)
	}
	if err := p.CloseInput(later.ctx); err != nil {
		later.Fatalf("close input: %v", err)
	}
	out := later.collect(p, sandbox.Offsets{Stdout: at.Stdout})
	later.wantText("stdout from the offset on", out.stdout, "two\n")
	later.wantText("stderr from the beginning", out.stderr, "error\n")
	if exit := later.wait(p); exit.Code != 5 {
		later.Errorf("exit %+v, want code 5", exit)
	}
}

func adoptTerminal(r *rig) {
	r.need(r.d.Capabilities().TTY, "a terminal")
	var h sandbox.Handle
	var id string
	var at sandbox.Offsets
	later := r.restart(func(first *rig) {
		b := first.early()
		h = first.written(b.Handle())
		spec := first.sh("echo one; cat; stty size; exit 4")
		spec.TTY, spec.Stdin, spec.Cols, spec.Rows = true, true, 80, 24
		p := first.exec(b, spec)
		id, at = p.ID(), first.until(p, "one")
	})
	p, err := later.adopt(h).Attach(later.ctx, id, at)
	if err != nil {
		later.Fatalf("attach: %v", err)
	}
	if err := p.Resize(later.ctx, 132, 43); err != nil {
		later.Errorf("resize: %v", err)
	}
	if err := p.Write(later.ctx, []byte("two\n")); err != nil {
		later.Fatalf("write: %v", err)
	}
	if err := p.CloseInput(later.ctx); err != nil {
		later.Fatalf("close input: %v", err)
	}
	out := later.collect(p, at)
	if !strings.Contains(out.stdout, "two") || !strings.Contains(out.stdout, "43 132") || strings.Contains(out.stdout, "one") {
		later.Errorf("from the offset on the terminal shows %q", out.stdout)
	}
	if exit := later.wait(p); exit.Code != 4 {
		later.Errorf("exit %+v, want code 4", exit)
	}
}

func adoptEnded(r *rig) {
	var h sandbox.Handle
	var id string
	var before sandbox.Exit
	later := r.restart(func(first *rig) {
		b := first.early()
		h = first.written(b.Handle())
		p := first.exec(b, first.sh("echo done; exit 6"))
		id, before = p.ID(), first.wait(p)
	})
	p, err := later.adopt(h).Attach(later.ctx, id, sandbox.Offsets{})
	if err != nil {
		later.Fatalf("attach: %v", err)
	}
	after := later.wait(p)
	if !after.Ended.Equal(before.Ended) || after.Code != 6 || after.Lost {
		later.Errorf("the exit is now %+v, and was %+v", after, before)
	}
	later.wantText("stdout", later.collect(p, sandbox.Offsets{}).stdout, "done\n")
}

func adoptDestroy(r *rig) {
	var h sandbox.Handle
	later := r.restart(func(first *rig) {
		b := first.early()
		h = first.written(b.Handle())
		first.until(first.exec(b, first.sh("echo up; sleep 100000")), "up")
	})
	if err := later.d.Destroy(later.ctx, h); err != nil {
		later.Fatalf("destroy: %v", err)
	}
	if later.listed(h.ID) {
		later.Error("it is still listed")
	}
}

func adoptList(r *rig) {
	var h sandbox.Handle
	later := r.restart(func(first *rig) { h = first.written(first.early().Handle()) })
	if !later.listed(h.ID) {
		later.Error("an orphan is not listed, so nobody can sweep it")
	}
	handles, err := later.d.List(later.ctx)
	if err != nil {
		later.Fatal(err)
	}
	for _, listed := range handles {
		if err := later.d.Destroy(later.ctx, listed); err != nil {
			later.Errorf("destroy by the listed handle: %v", err)
		}
	}
}

// adoptOOM has a sandbox run out of memory while no driver is open.
func adoptOOM(r *rig) {
	r.need(r.d.Capabilities().Memory && r.h.OOM != nil && r.h.Kernel, "a memory limit, or its harness has no kernel")
	const limit = 128 << 20
	var h sandbox.Handle
	later := r.restart(func(first *rig) {
		spec := first.spec()
		spec.Limits.Memory = limit
		b, err := first.d.Create(first.ctx, spec, noReport)
		if err != nil {
			first.Fatal(err)
		}
		h = first.written(b.Handle())
		greedy := first.h.OOM(limit)
		greedy.ID = first.newID()
		greedy.Command = append([]string{"sh", "-c", `sleep 1; exec "$@"`, "sh"}, greedy.Command...)
		first.exec(b, greedy)
	})
	if err := later.sweep(h); err != nil {
		r.Fatal(err)
	}
	// Whoever looks before its end adopts it, and sees the end like any other.
	var err error
	later.eventually("it runs out of memory", func() bool {
		var b sandbox.Box
		if b, err = later.d.Recover(later.ctx, h); err != nil {
			return true
		}
		select {
		case <-b.Done():
		case <-later.ctx.Done():
		}
		return false
	})
	later.wantKind("recover", err, fault.NotFound)
	later.wantText("code", fault.CodeOf(err), sandbox.CodeOutOfMemory)
}
