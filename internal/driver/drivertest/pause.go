package drivertest

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// pauseChecks are the sentences on pauses.
func pauseChecks() []check {
	return []check{
		{"a paused sandbox goes on when it is resumed", pauses},
		{"a command goes on without a gap or a repeat through pauses", pausesInCount},
		{"what is asked of a paused sandbox is a Conflict", askPaused},
		{"what was asked before a pause does not wait for its end", askedBeforePause},
		{"a paused sandbox can be measured and destroyed", destroyPaused},
		{"a later process adopts a paused sandbox as paused", adoptPaused},
		{"a pause that is not declared is not offered, or refused", noPause},
	}
}

func pauses(r *rig) {
	r.need(r.d.Capabilities().Pause, "pause")
	b := r.box()
	pauser, ok := b.(sandbox.Pauser)
	if !ok {
		r.Fatal("the driver declares pause, and its boxes have none")
	}
	spec := r.sh("echo up; cat; echo end")
	spec.Stdin = true
	p := r.exec(b, spec)
	r.until(p, "up\n")
	for range 2 {
		if err := pauser.Pause(r.ctx); err != nil {
			r.Fatalf("pause: %v", err)
		}
	}
	if err := pauser.Resume(r.ctx); err != nil {
		r.Fatalf("resume: %v", err)
	}
	if err := p.CloseInput(r.ctx); err != nil {
		r.Fatalf("close input: %v", err)
	}
	if exit := r.wait(p); exit.Code != 0 {
		r.Errorf("exit %+v", exit)
	}
}

func noPause(r *rig) {
	if r.d.Capabilities().Pause {
		r.Skip("the driver declares pause")
	}
	b := r.box()
	if pauser, ok := b.(sandbox.Pauser); ok {
		r.wantKind("Pause", pauser.Pause(r.ctx), fault.Invalid)
		r.say(b, "true")
	}
}

// pauser is the box's power to pause.
func (r *rig) pauser(b sandbox.Box) sandbox.Pauser {
	r.Helper()
	pauser, ok := b.(sandbox.Pauser)
	if !ok {
		r.Fatal("the driver declares pause, and its boxes have none")
	}
	return pauser
}

func (r *rig) pause(b sandbox.Box) {
	r.Helper()
	if err := r.pauser(b).Pause(r.ctx); err != nil {
		r.Fatalf("pause: %v", err)
	}
}

func (r *rig) resume(b sandbox.Box) {
	r.Helper()
	if err := r.pauser(b).Resume(r.ctx); err != nil {
		r.Fatalf("resume: %v", err)
	}
}

// counter is an exec that counts to most, with a moment between the numbers, and
// what it says.
func (r *rig) counter(most int) (sandbox.ExecSpec, string) {
	r.Helper()
	var script, says strings.Builder
	for i := range most {
		fmt.Fprintf(&script, "echo %d; sleep 0.05; ", i)
		fmt.Fprintln(&says, i)
	}
	return r.sh(script.String()), says.String()
}

func pausesInCount(r *rig) {
	r.need(r.d.Capabilities().Pause, "pause")
	b := r.box()
	spec, says := r.counter(12)
	p := r.exec(b, spec)
	var c collector
	for i := 0; c.stdout.Len() < len(says); i++ {
		f, err := p.Next(r.ctx)
		if err != nil {
			r.Fatalf("next frame: %v", err)
		}
		if err := c.add(f); err != nil {
			r.Fatal(err)
		}
		if i%3 == 0 {
			r.pause(b)
			r.resume(b)
		}
	}
	r.wantText("the count", c.stdout.String(), says)
	if exit := r.wait(p); exit.Code != 0 {
		r.Errorf("exit %+v", exit)
	}
}

// wantPaused fails unless the error says that the sandbox is paused.
func (r *rig) wantPaused(what string, err error) {
	r.Helper()
	r.wantKind(what, err, fault.Conflict)
	if code := fault.CodeOf(err); code != sandbox.CodePaused {
		r.Fatalf("%s: code %q, want %q", what, code, sandbox.CodePaused)
	}
}

func askPaused(r *rig) {
	r.need(r.d.Capabilities().Pause, "pause")
	b := r.box()
	spec := r.sh("echo up; cat; exit 6")
	spec.Stdin = true
	p := r.exec(b, spec)
	at := r.until(p, "up\n")
	r.pause(b)
	for name, call := range map[string]func() error{
		"Exec":       func() error { _, err := b.Exec(r.ctx, r.sh("true")); return err },
		"Attach":     func() error { _, err := b.Attach(r.ctx, p.ID(), at); return err },
		"Put":        func() error { return b.Put(r.ctx, "/workspace", bytes.NewReader(tarOf(r, file("a", "b")))) },
		"Get":        func() error { return b.Get(r.ctx, "/workspace", io.Discard) },
		"Write":      func() error { return p.Write(r.ctx, []byte("x")) },
		"CloseInput": func() error { return p.CloseInput(r.ctx) },
		"Signal":     func() error { return p.Signal(r.ctx, sigKill, true) },
	} {
		r.wantPaused(name, r.soon(name, call))
	}
	r.resume(b)
	if err := p.CloseInput(r.ctx); err != nil {
		r.Fatalf("close input: %v", err)
	}
	if exit := r.wait(p); exit.Code != 6 {
		r.Errorf("exit %+v", exit)
	}
}

func askedBeforePause(r *rig) {
	r.need(r.d.Capabilities().Pause, "pause")
	b := r.box()
	spec := r.sh("echo up; sleep 100000")
	spec.Stdin = true
	p := r.exec(b, spec)
	r.until(p, "up\n")
	wrote := make(chan error, 1)
	go func() {
		for {
			if err := p.Write(r.ctx, make([]byte, 1<<20)); err != nil { // until it waits
				wrote <- err
				return
			}
		}
	}()
	waited := make(chan error, 1)
	go func() { _, err := p.Wait(r.ctx); waited <- err }()
	r.pause(b)
	r.wantPaused("Write", r.soon("Write", func() error { return <-wrote }))
	r.resume(b)
	if err := p.Signal(r.ctx, sigKill, true); err != nil {
		r.Fatalf("kill: %v", err)
	}
	if err := r.soon("Wait", func() error { return <-waited }); err != nil {
		r.Errorf("wait through a pause: %v", err)
	}
}

func destroyPaused(r *rig) {
	r.need(r.d.Capabilities().Pause, "pause")
	b := r.box()
	p := r.exec(b, r.sh("echo up; sleep 100000"))
	r.until(p, "up\n")
	r.pause(b)
	if _, err := b.Usage(r.ctx); err != nil {
		r.Errorf("usage: %v", err)
	}
	if err := r.d.Destroy(r.ctx, b.Handle()); err != nil {
		r.Fatalf("destroy: %v", err)
	}
	r.wait(p)
	<-b.Done()
}

func adoptPaused(r *rig) {
	r.need(r.d.Capabilities().Pause, "pause")
	var h sandbox.Handle
	var id string
	var at sandbox.Offsets
	spec, says := r.counter(6)
	later := r.restart(func(first *rig) {
		b := first.early()
		h = first.written(b.Handle())
		p := first.exec(b, spec)
		id, at = p.ID(), first.until(p, "0\n")
		first.pause(b)
	})
	b := later.adopt(h)
	_, err := b.Exec(later.ctx, later.sh("true"))
	later.wantPaused("Exec", err)
	later.resume(b)
	p, err := b.Attach(later.ctx, id, at)
	if err != nil {
		r.Fatalf("attach: %v", err)
	}
	later.wantText("the rest of the count", later.collect(p, at).stdout, says[at.Stdout:])
	later.say(b, "true")
}
