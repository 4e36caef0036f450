package drivertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// lifeChecks are the sentences on order, context, handles and Destroy.
func lifeChecks() []check {
	return []check{
		{"the name and the capabilities are constant", constant},
		{"Create reports the handle before it returns", reportsFirst},
		{"Create gives up when report fails", reportFails},
		{"an id that is no id is refused", badID},
		{"calls may come from several goroutines", severalGoroutines},
		{"after Destroy every call fails and none blocks", afterDestroy},
		{"a process goes on when the ctx of Exec ends", execCtxEnds},
		{"a sandbox goes on when the ctx of Create ends", createCtxEnds},
		{"a Create whose ctx has ended leaves nothing", createCtxEnded},
		{"a Create whose ctx ends half way leaves nothing that Destroy does not remove", createHalfWay},
		{"a handle can be written down", handleWrittenDown},
		{"Recover of what is gone is NotFound", recoverGone},
		{"List names every sandbox until it is destroyed", lists},
		{"Destroy is idempotent", destroyTwice},
		{"Destroy of what was only half made succeeds", destroyHalfMade},
		{"Destroy ends every process and every pending call returns", destroyPending},
		{"Done is closed by Destroy and not before", doneByDestroy},
	}
}

func constant(r *rig) {
	if r.d.Name() == "" || r.d.Name() != r.d.Name() { //nolint:staticcheck // asked twice on purpose
		r.Errorf("name %q", r.d.Name())
	}
	one, two := r.d.Capabilities(), r.d.Capabilities()
	a, errA := json.Marshal(one)
	b, errB := json.Marshal(two)
	if err := errors.Join(errA, errB); err != nil || !bytes.Equal(a, b) {
		r.Errorf("capabilities change from %s to %s (%v)", a, b, err)
	}
	if one.Isolation == "" {
		r.Error("the driver does not say what its wall is")
	}
}

func reportsFirst(r *rig) {
	var reported []sandbox.Handle
	spec := r.spec()
	b, err := r.d.Create(r.ctx, spec, func(h sandbox.Handle) error {
		reported = append(reported, h)
		return r.sweep(h)
	})
	if err != nil {
		r.Fatalf("create: %v", err)
	}
	if len(reported) != 1 {
		r.Fatalf("%d handles were reported, want 1", len(reported))
	}
	h := reported[0]
	if h.ID != spec.ID || h.Driver != r.d.Name() || h.Version < 1 {
		r.Errorf("the handle %+v does not name sandbox %s of driver %s", h, spec.ID, r.d.Name())
	}
	if got := b.Handle(); got.ID != h.ID || got.Version != h.Version || !bytes.Equal(got.State, h.State) {
		r.Errorf("the box carries %+v, reported was %+v", got, h)
	}
}

func reportFails(r *rig) {
	refusal := errors.New("the report is refused")
	spec := r.spec()
	_, err := r.d.Create(r.ctx, spec, func(sandbox.Handle) error { return refusal })
	if !errors.Is(err, refusal) {
		r.Errorf("create: %v, want the report's own error", err)
	}
	if r.listed(spec.ID) {
		r.Error("a sandbox that nobody knows of was made")
	}
}

func badID(r *rig) {
	for _, id := range []string{"", "../up", "A", "a b", "a/b", "a\x00", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"} {
		spec := r.spec()
		spec.ID = id
		_, err := r.d.Create(r.ctx, spec, r.sweep)
		r.wantKind("create with id "+id, err, fault.Invalid)
	}
}

func severalGoroutines(r *rig) {
	b := r.box()
	var group sync.WaitGroup
	failed := make(chan error, 8)
	for range cap(failed) {
		spec := r.sh("echo hello; exit 3")
		group.Go(func() {
			p, err := b.Exec(r.ctx, spec)
			if err != nil {
				failed <- err
				return
			}
			exit, err := p.Wait(r.ctx)
			if err == nil && exit.Code != 3 {
				err = errors.New("a process ended with another's code")
			}
			if err == nil {
				_, err = b.Usage(r.ctx)
			}
			failed <- err
		})
	}
	group.Wait()
	for range cap(failed) {
		if err := <-failed; err != nil {
			r.Error(err)
		}
	}
}

func afterDestroy(r *rig) {
	b := r.box()
	p := r.exec(b, r.sh("echo hello"))
	r.wait(p)
	if err := r.d.Destroy(r.ctx, b.Handle()); err != nil {
		r.Fatalf("destroy: %v", err)
	}
	calls := map[string]func() error{
		"Exec":   func() error { _, err := b.Exec(r.ctx, r.sh("true")); return err },
		"Attach": func() error { _, err := b.Attach(r.ctx, p.ID(), sandbox.Offsets{}); return err },
		"Put":    func() error { return b.Put(r.ctx, "/workspace", bytes.NewReader(tarOf(r, file("a", "b")))) },
		"Get":    func() error { return b.Get(r.ctx, "/workspace", io.Discard) },
		"Usage":  func() error { _, err := b.Usage(r.ctx); return err },
	}
	if pauser, ok := b.(sandbox.Pauser); ok {
		calls["Pause"] = func() error { return pauser.Pause(r.ctx) }
		calls["Resume"] = func() error { return pauser.Resume(r.ctx) }
	}
	for name, call := range calls {
		r.wantKind(name, r.soon(name, call), fault.NotFound, fault.Conflict)
	}
}

func execCtxEnds(r *rig) {
	b := r.box()
	ctx, cancel := context.WithCancelCause(r.ctx)
	spec := r.sh("cat; exit 4")
	spec.Stdin = true
	p, err := b.Exec(ctx, spec)
	if err != nil {
		r.Fatalf("exec: %v", err)
	}
	cancel(errors.New("the call is over"))
	if err := p.Write(r.ctx, []byte("still here")); err != nil {
		r.Fatalf("write: %v", err)
	}
	if err := p.CloseInput(r.ctx); err != nil {
		r.Fatalf("close input: %v", err)
	}
	r.wantText("output", r.collect(p, sandbox.Offsets{}).stdout, "still here")
	if exit := r.wait(p); exit.Code != 4 {
		r.Errorf("exit %+v, want code 4", exit)
	}
}

func createCtxEnds(r *rig) {
	ctx, cancel := context.WithCancelCause(r.ctx)
	b, err := r.d.Create(ctx, r.spec(), r.sweep)
	if err != nil {
		r.Fatalf("create: %v", err)
	}
	cancel(errors.New("the call is over"))
	r.wantText("output", r.say(b, "echo still here"), "still here")
}

func createCtxEnded(r *rig) {
	ctx, cancel := context.WithCancelCause(r.ctx)
	cancel(errors.New("the call is over"))
	spec := r.spec()
	var reported []sandbox.Handle
	_, err := r.d.Create(ctx, spec, func(h sandbox.Handle) error {
		reported = append(reported, h)
		return nil
	})
	if err == nil {
		r.Error("create succeeded although its ctx had ended")
	}
	for _, h := range reported {
		if err := r.d.Destroy(r.ctx, h); err != nil {
			r.Errorf("destroy: %v", err)
		}
	}
	if r.listed(spec.ID) {
		r.Error("something was left")
	}
}

func createHalfWay(r *rig) {
	ctx, cancel := context.WithCancelCause(r.ctx)
	spec := r.spec()
	var h sandbox.Handle
	b, err := r.d.Create(ctx, spec, func(reported sandbox.Handle) error {
		h = reported
		cancel(errors.New("the call is over"))
		return nil
	})
	if err == nil {
		r.Logf("create was faster than the end of its ctx: %v", b.Handle().ID)
	}
	if err := r.d.Destroy(r.ctx, h); err != nil {
		r.Fatalf("destroy: %v", err)
	}
	if r.listed(spec.ID) {
		r.Error("something was left")
	}
}

func handleWrittenDown(r *rig) {
	b := r.box()
	written, err := json.Marshal(b.Handle())
	if err != nil {
		r.Fatalf("encode: %v", err)
	}
	var read sandbox.Handle
	if err := json.Unmarshal(written, &read); err != nil {
		r.Fatalf("decode: %v", err)
	}
	if err := r.d.Destroy(r.ctx, read); err != nil {
		r.Fatalf("destroy by the read handle: %v", err)
	}
	if r.listed(read.ID) {
		r.Error("the sandbox is still listed")
	}
}

func recoverGone(r *rig) {
	b := r.box()
	if err := r.d.Destroy(r.ctx, b.Handle()); err != nil {
		r.Fatalf("destroy: %v", err)
	}
	_, err := r.d.Recover(r.ctx, b.Handle())
	r.wantKind("recover", err, fault.NotFound)
}

func lists(r *rig) {
	one, two := r.box(), r.box()
	for _, b := range []sandbox.Box{one, two} {
		if !r.listed(b.Handle().ID) {
			r.Errorf("%s is not listed", b.Handle().ID)
		}
	}
	if err := r.d.Destroy(r.ctx, one.Handle()); err != nil {
		r.Fatalf("destroy: %v", err)
	}
	if r.listed(one.Handle().ID) {
		r.Error("what was destroyed is still listed")
	}
	if !r.listed(two.Handle().ID) {
		r.Error("the other one is no longer listed")
	}
}

func destroyTwice(r *rig) {
	b := r.box()
	for i := range 3 {
		if err := r.d.Destroy(r.ctx, b.Handle()); err != nil {
			r.Fatalf("destroy number %d: %v", i+1, err)
		}
	}
	var group sync.WaitGroup
	again := r.box()
	for range 4 {
		group.Go(func() {
			if err := r.d.Destroy(r.ctx, again.Handle()); err != nil {
				r.Errorf("destroy at the same time: %v", err)
			}
		})
	}
	group.Wait()
}

func destroyHalfMade(r *rig) {
	var h sandbox.Handle
	_, err := r.d.Create(r.ctx, r.spec(), func(reported sandbox.Handle) error {
		h = reported
		return errors.New("no further")
	})
	if err == nil || h.ID == "" {
		r.Fatalf("create went on after a failed report (%v), or reported nothing", err)
	}
	if err := r.d.Destroy(r.ctx, h); err != nil {
		r.Fatalf("destroy: %v", err)
	}
}

func destroyPending(r *rig) {
	b := r.box()
	p := r.exec(b, r.sh("echo up; sleep 100000"))
	r.until(p, "up")
	other, err := b.Attach(r.ctx, p.ID(), sandbox.Offsets{})
	if err != nil {
		r.Fatalf("attach: %v", err)
	}
	exits := make(chan sandbox.Exit, 2)
	var group sync.WaitGroup
	for range cap(exits) {
		group.Go(func() {
			exit, err := p.Wait(r.ctx)
			if err != nil {
				exit = sandbox.Exit{Lost: true} // an end that nobody can tell any more
			}
			exits <- exit
		})
	}
	group.Go(func() {
		for {
			if _, err := other.Next(r.ctx); err != nil {
				return
			}
		}
	})
	if err := r.d.Destroy(r.ctx, b.Handle()); err != nil {
		r.Fatalf("destroy: %v", err)
	}
	if err := r.soon("a pending call", func() error { group.Wait(); return nil }); err != nil {
		r.Fatal(err)
	}
	if r.ctx.Err() != nil {
		r.Fatal("a pending call returned only when its ctx ended")
	}
	for range cap(exits) {
		if exit := <-exits; exit.Signal == 0 && !exit.Lost {
			r.Errorf("exit %+v, want a signal, or lost", exit)
		}
	}
}

func doneByDestroy(r *rig) {
	b := r.box()
	r.say(b, "true")
	select {
	case <-b.Done():
		r.Fatal("done while the sandbox lives")
	default:
	}
	if err := r.d.Destroy(r.ctx, b.Handle()); err != nil {
		r.Fatalf("destroy: %v", err)
	}
	select {
	case <-b.Done():
	case <-r.ctx.Done():
		r.Fatal("not done after Destroy")
	}
}
