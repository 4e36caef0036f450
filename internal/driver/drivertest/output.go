package drivertest

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// outputChecks are the sentences on output and terminals.
func outputChecks() []check {
	return []check{
		{"the two streams are apart", twoStreams},
		{"frames join without gap or overlap", framesJoin},
		{"readers may come and go", readersComeAndGo},
		{"Next returns io.EOF after the last frame, again and again", nextEOF},
		{"a ctx bounds Next and loses nothing", nextCtx},
		{"output is there before the process ends", liveOutput},
		{"output need not be read for a process to end", unreadOutput},
		{"with a terminal everything is on stdout", terminal},
		{"a terminal that is not declared is refused", noTerminal},
		{"Resize without a terminal is a Conflict", resizeWithout},
	}
}

func twoStreams(r *rig) {
	_, out := r.run(r.box(), r.sh("echo out; echo err 1>&2; echo more; echo worse 1>&2"))
	r.wantText("stdout", out.stdout, "out\nmore\n")
	r.wantText("stderr", out.stderr, "err\nworse\n")
}

func framesJoin(r *rig) {
	const size = 3<<20 + 17
	exit, out := r.run(r.box(), r.sh("head -c 3145745 /dev/zero; echo end; head -c 70001 /dev/zero 1>&2"))
	if exit.Code != 0 {
		r.Fatalf("exit %+v", exit)
	}
	r.wantText("stdout", out.stdout, strings.Repeat("\x00", size)+"end\n")
	r.wantText("stderr", out.stderr, strings.Repeat("\x00", 70001))
}

func readersComeAndGo(r *rig) {
	b := r.box()
	spec := r.sh("echo first; echo wrong 1>&2; cat; echo last")
	spec.Stdin = true
	p := r.exec(b, spec)
	at := r.until(p, "first\n")
	later, err := b.Attach(r.ctx, p.ID(), sandbox.Offsets{Stdout: at.Stdout})
	if err != nil {
		r.Fatalf("attach: %v", err)
	}
	if err := p.Write(r.ctx, []byte("middle\n")); err != nil {
		r.Fatalf("write: %v", err)
	}
	if err := p.CloseInput(r.ctx); err != nil {
		r.Fatalf("close input: %v", err)
	}
	out := r.collect(later, sandbox.Offsets{Stdout: at.Stdout})
	r.wantText("the later reader's stdout", out.stdout, "middle\nlast\n")
	r.wantText("the later reader's stderr", out.stderr, "wrong\n")
	all, err := b.Attach(r.ctx, p.ID(), sandbox.Offsets{})
	if err != nil {
		r.Fatalf("attach after the end: %v", err)
	}
	r.wantText("stdout after the end", r.collect(all, sandbox.Offsets{}).stdout, "first\nmiddle\nlast\n")
	within := sandbox.Offsets{Stdout: 3, Stderr: 6}
	part, err := b.Attach(r.ctx, p.ID(), within)
	if err != nil {
		r.Fatalf("attach within a frame: %v", err)
	}
	r.wantText("stdout from within", r.collect(part, within).stdout, "st\nmiddle\nlast\n")
}

func nextEOF(r *rig) {
	b := r.box()
	p := r.exec(b, r.sh("echo x"))
	r.collect(p, sandbox.Offsets{})
	for range 3 {
		if _, err := p.Next(r.ctx); !errors.Is(err, io.EOF) {
			r.Errorf("next: %v, want io.EOF", err)
		}
	}
	p = r.exec(b, r.sh("true"))
	r.wantText("output of true", r.collect(p, sandbox.Offsets{}).stdout, "")
}

func nextCtx(r *rig) {
	b := r.box()
	spec := r.sh("cat")
	spec.Stdin = true
	p := r.exec(b, spec)
	ctx, cancel := context.WithCancelCause(r.ctx)
	cancel(errors.New("the call is over"))
	if f, err := p.Next(ctx); err == nil {
		r.Errorf("a frame %+v of a process that said nothing", f)
	}
	if err := p.Write(r.ctx, []byte("words")); err != nil {
		r.Fatalf("write: %v", err)
	}
	if err := p.CloseInput(r.ctx); err != nil {
		r.Fatalf("close input: %v", err)
	}
	r.wantText("output", r.collect(p, sandbox.Offsets{}).stdout, "words")
}

func liveOutput(r *rig) {
	b := r.box()
	p := r.exec(b, r.sh("echo live; sleep 100000"))
	r.until(p, "live")
	if err := p.Signal(r.ctx, sigKill, true); err != nil {
		r.Errorf("kill: %v", err)
	}
}

// unreadOutput keeps to an amount that any driver can hold for a reader.
func unreadOutput(r *rig) {
	b := r.box()
	p := r.exec(b, r.sh("head -c 32768 /dev/zero; exit 3"))
	if exit := r.wait(p); exit.Code != 3 {
		r.Errorf("exit %+v, want code 3", exit)
	}
	r.wantText("output, read after the end", r.collect(p, sandbox.Offsets{}).stdout, strings.Repeat("\x00", 32768))
}

func terminal(r *rig) {
	r.need(r.d.Capabilities().TTY, "a terminal")
	b := r.box()
	spec := r.sh("echo out; echo err 1>&2; cat; stty size")
	spec.TTY, spec.Stdin, spec.Cols, spec.Rows = true, true, 80, 24
	p := r.exec(b, spec)
	r.until(p, "err")
	if err := p.Resize(r.ctx, 132, 43); err != nil {
		r.Errorf("resize: %v", err)
	}
	if err := p.CloseInput(r.ctx); err != nil {
		r.Fatalf("close input: %v", err)
	}
	all, err := b.Attach(r.ctx, p.ID(), sandbox.Offsets{})
	if err != nil {
		r.Fatalf("attach: %v", err)
	}
	out := r.collect(all, sandbox.Offsets{})
	r.wantText("stderr", out.stderr, "")
	if !strings.Contains(out.stdout, "out") || !strings.Contains(out.stdout, "43 132") {
		r.Errorf("the terminal shows %q, want both streams and the size 43 132", out.stdout)
	}
}

func noTerminal(r *rig) {
	if r.d.Capabilities().TTY {
		r.Skip("the driver declares a terminal")
	}
	spec := r.sh("true")
	spec.TTY = true
	_, err := r.box().Exec(r.ctx, spec)
	r.wantKind("an exec with a terminal", err, fault.Invalid)
}

func resizeWithout(r *rig) {
	b := r.box()
	p := r.exec(b, r.sh("sleep 100000"))
	r.wantKind("resize", p.Resize(r.ctx, 80, 24), fault.Conflict)
	if err := p.Signal(r.ctx, sigKill, true); err != nil {
		r.Errorf("kill: %v", err)
	}
}
