package drivertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// rig is what one check works with.
type rig struct {
	*testing.T
	h   Harness
	d   sandbox.Driver
	ctx context.Context // the check's own, bounded by patience
}

func newRig(t *testing.T, h Harness, d sandbox.Driver) *rig {
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errPatience)
	t.Cleanup(cancel)
	return &rig{T: t, h: h, d: d, ctx: ctx}
}

// need stops the check unless the driver declares the power.
func (r *rig) need(declared bool, power string) {
	r.Helper()
	if !declared {
		r.Skip("the driver does not declare " + power)
	}
}

func (r *rig) newID() string {
	r.Helper()
	id, err := sandbox.NewID()
	if err != nil {
		r.Fatal(err)
	}
	return id
}

// spec is the smallest spec, with a new id.
func (r *rig) spec() sandbox.Spec {
	r.Helper()
	return sandbox.Spec{ID: r.newID(), Image: r.h.Image}
}

func noReport(sandbox.Handle) error { return nil }

// box makes a sandbox that is destroyed at the end of the check.
func (r *rig) box() sandbox.Box {
	r.Helper()
	return r.create(r.spec())
}

func (r *rig) create(spec sandbox.Spec) sandbox.Box {
	r.Helper()
	b, err := r.d.Create(r.ctx, spec, r.sweep)
	if err != nil {
		r.Fatalf("create: %v", err)
	}
	return b
}

// sweep is a report that has the sandbox destroyed at the end of the check.
func (r *rig) sweep(h sandbox.Handle) error {
	r.Cleanup(func() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errPatience)
		defer cancel()
		if err := r.d.Destroy(ctx, h); err != nil {
			r.Errorf("destroy at the end: %v", err)
		}
	})
	return nil
}

// sh is an exec of a script.
func (r *rig) sh(script string) sandbox.ExecSpec {
	r.Helper()
	command := []string{"sh", "-c", script}
	if r.h.Shell != nil {
		command = r.h.Shell(script)
	}
	return sandbox.ExecSpec{ID: r.newID(), Command: command}
}

func (r *rig) exec(b sandbox.Box, spec sandbox.ExecSpec) sandbox.Process {
	r.Helper()
	p, err := b.Exec(r.ctx, spec)
	if err != nil {
		r.Fatalf("exec %q: %v", spec.Command, err)
	}
	return p
}

// run does an exec to its end.
func (r *rig) run(b sandbox.Box, spec sandbox.ExecSpec) (sandbox.Exit, text) {
	r.Helper()
	p := r.exec(b, spec)
	out := r.collect(p, sandbox.Offsets{})
	return r.wait(p), out
}

// say runs a script that must succeed, and returns what it printed.
func (r *rig) say(b sandbox.Box, script string) string {
	r.Helper()
	exit, out := r.run(b, r.sh(script))
	if exit.Code != 0 {
		r.Fatalf("%q ended with %+v and said %q", script, exit, out)
	}
	return strings.TrimSpace(out.stdout)
}

func (r *rig) wait(p sandbox.Process) sandbox.Exit {
	r.Helper()
	exit, err := p.Wait(r.ctx)
	if err != nil {
		r.Fatalf("wait: %v", err)
	}
	return exit
}

// text is both streams.
type text struct{ stdout, stderr string }

// collect reads to the end, and checks that each stream's frames join.
func (r *rig) collect(p sandbox.Process, from sandbox.Offsets) text {
	r.Helper()
	var c collector
	c.at = from
	for {
		f, err := p.Next(r.ctx)
		if errors.Is(err, io.EOF) {
			return text{c.stdout.String(), c.stderr.String()}
		}
		if err != nil {
			r.Fatalf("next frame: %v", err)
		}
		if err := c.add(f); err != nil {
			r.Fatal(err)
		}
	}
}

// until reads until stdout holds the words, and returns where the reader is.
func (r *rig) until(p sandbox.Process, words string) sandbox.Offsets {
	r.Helper()
	var c collector
	for !strings.Contains(c.stdout.String(), words) {
		f, err := p.Next(r.ctx)
		if err != nil {
			r.Fatalf("read until %q, after %q: %v", words, c.stdout.String(), err)
		}
		if err := c.add(f); err != nil {
			r.Fatal(err)
		}
	}
	return c.at
}

type collector struct {
	stdout, stderr strings.Builder
	at             sandbox.Offsets
}

func (c *collector) add(f sandbox.Frame) error {
	const tooLarge = 4 << 20
	at, to := &c.at.Stdout, &c.stdout
	switch f.Stream {
	case sandbox.Stdout:
	case sandbox.Stderr:
		at, to = &c.at.Stderr, &c.stderr
	default:
		return fmt.Errorf("a frame of stream %d", f.Stream)
	}
	if f.Offset != *at {
		return fmt.Errorf("a frame of stream %d begins at %d and not at %d", f.Stream, f.Offset, *at)
	}
	if len(f.Data) == 0 || len(f.Data) > tooLarge {
		return fmt.Errorf("a frame of %d bytes", len(f.Data))
	}
	*at += int64(len(f.Data))
	to.Write(f.Data)
	return nil
}

// soon runs a call that must not block, and returns its error.
func (r *rig) soon(what string, call func() error) error {
	r.Helper()
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	select {
	case err := <-ended:
		return err
	case <-r.ctx.Done():
		r.Fatalf("%s blocks", what)
		return nil
	}
}

// eventually asks again until the answer is yes.
func (r *rig) eventually(what string, ask func() bool) {
	r.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !ask() {
		select {
		case <-ticker.C:
		case <-r.ctx.Done():
			r.Fatalf("never: %s", what)
		}
	}
}

// wantKind fails unless the error is a fault of one of the kinds.
func (r *rig) wantKind(what string, err error, kinds ...fault.Kind) {
	r.Helper()
	if err == nil {
		r.Fatalf("%s succeeded, want a fault of kind %v", what, kinds)
	}
	if !slices.Contains(kinds, fault.KindOf(err)) {
		r.Fatalf("%s: %v (kind %v), want kind %v", what, err, fault.KindOf(err), kinds)
	}
}

// listed reports whether List names the sandbox.
func (r *rig) listed(id string) bool {
	r.Helper()
	handles, err := r.d.List(r.ctx)
	if err != nil {
		r.Fatalf("list: %v", err)
	}
	return slices.ContainsFunc(handles, func(h sandbox.Handle) bool { return h.ID == id })
}

// wantText fails unless the texts are equal; long ones are not printed.
func (r *rig) wantText(what, got, want string) {
	r.Helper()
	const long = 400
	if got == want {
		return
	}
	if len(got)+len(want) > long {
		r.Fatalf("%s: %d bytes that differ from the %d wanted", what, len(got), len(want))
	}
	r.Fatalf("%s: %q, want %q", what, got, want)
}
