package roster_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/aurea-dev/aurea/internal/driver/roster"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

type box struct{ dead, detached bool }

func (b *box) Alive() bool { return !b.dead }
func (b *box) Detach()     { b.detached = true }

func TestAnIDIsGivenOnce(t *testing.T) {
	t.Parallel()
	r := roster.New[*box]("x", 1, t.TempDir())
	_, making, err := r.Begin(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Begin(t.Context(), "a"); !fault.Is(err, fault.Conflict) {
		t.Errorf("begun twice: %v", err)
	}
	if err := r.Adopt("a", &box{}); err != nil {
		t.Fatal(err)
	}
	making.Finish()
	if _, _, err := r.Begin(t.Context(), "a"); !fault.Is(err, fault.Conflict) {
		t.Errorf("made twice: %v", err)
	}
	if _, ok := r.Drop("a"); !ok {
		t.Error("the box was not there")
	}
	if err := os.Mkdir(r.Dir("a"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Begin(t.Context(), "a"); !fault.Is(err, fault.Conflict) {
		t.Errorf("over a folder: %v", err)
	}
}

func TestInterruptWaitsForTheMaking(t *testing.T) {
	t.Parallel()
	r := roster.New[*box]("x", 1, t.TempDir())
	if err := r.Interrupt(t.Context(), "a"); err != nil {
		t.Errorf("nothing to interrupt: %v", err)
	}
	ctx, making, err := r.Begin(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no time"))
	if err := r.Interrupt(impatient, "a"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("did not wait: %v", err)
	}
	if !fault.Is(context.Cause(ctx), fault.Conflict) {
		t.Errorf("the making goes on: %v", context.Cause(ctx))
	}
	making.Finish()
	if err := r.Interrupt(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// TestHaltWaitsUntilNothingRuns halts two makings: one that fails and takes its
// time to clear away, and one that is made after all.
func TestHaltWaitsUntilNothingRuns(t *testing.T) {
	t.Parallel()
	r := roster.New[*box]("x", 1, t.TempDir())
	fails, failing, err := r.Begin(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	_, making, err := r.Begin(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	wait := r.Halt(nil)
	if !fault.Is(context.Cause(fails), fault.Conflict) {
		t.Errorf("the making goes on: %v", context.Cause(fails))
	}
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no time"))
	if err := wait(over); !fault.Is(err, fault.Unavailable) || r.IsStill("a") {
		t.Errorf("did not wait for what runs: %v", err)
	}
	making.Finish()
	failing.Still()
	if err := wait(t.Context()); err != nil || !r.IsStill("a") || r.IsStill("b") {
		t.Errorf("what is only cleared away: %v", err)
	}
	if err := r.Interrupt(over, "a"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a sandbox that is not cleared away was destroyed: %v", err)
	}
	failing.Finish()
	if err := r.Interrupt(t.Context(), "a"); err != nil || r.IsStill("a") {
		t.Error(err)
	}
}

func TestCloseLetsGo(t *testing.T) {
	t.Parallel()
	r := roster.New[*box]("x", 1, t.TempDir())
	kept, late := &box{}, &box{}
	if err := r.Adopt("a", kept); err != nil {
		t.Fatal(err)
	}
	ctx, making, err := r.Begin(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	stopped := context.AfterFunc(ctx, making.Finish)
	defer stopped()
	if !r.Close() || r.Close() {
		t.Error("the first Close is the first, and no other")
	}
	if err := r.Adopt("c", late); !fault.Is(err, fault.Conflict) || !late.detached || !kept.detached {
		t.Errorf("%v, kept %+v, late %+v", err, kept, late)
	}
	if _, _, err := r.Begin(t.Context(), "d"); !fault.Is(err, fault.Conflict) {
		t.Errorf("begun after the close: %v", err)
	}
	if _, _, err := r.Live("a"); !fault.Is(err, fault.Conflict) {
		t.Errorf("live after the close: %v", err)
	}
}

func TestLiveIsWhatCanBeReached(t *testing.T) {
	t.Parallel()
	r := roster.New[*box]("x", 1, t.TempDir())
	b := &box{}
	if err := r.Adopt("a", b); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := r.Live("a"); got != b || !ok || err != nil {
		t.Errorf("%v %v %v", got, ok, err)
	}
	b.dead = true
	if _, ok, err := r.Live("a"); ok || err != nil {
		t.Errorf("a dead one is live: %v", err)
	}
	if _, ok, err := r.Live("b"); ok || err != nil {
		t.Errorf("an unknown one is live: %v", err)
	}
}

func TestHandles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := roster.New[*box]("x", 2, dir)
	for _, name := range []string{"whole", "half", "liar", "Not-An-Id"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	read := func(dir string) (sandbox.Handle, error) {
		switch filepath.Base(dir) {
		case "whole":
			return sandbox.Handle{Driver: "x", Version: 1, ID: "whole", State: []byte(`{}`)}, nil
		case "liar":
			return sandbox.Handle{Driver: "x", Version: 1, ID: "whole"}, nil
		}
		return sandbox.Handle{}, os.ErrNotExist
	}
	handles, err := r.Handles(read, "more", "../../etc")
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]int{}
	for _, h := range handles {
		versions[h.ID] = h.Version
	}
	if len(handles) != 4 || versions["whole"] != 1 || versions["half"] != 2 || versions["liar"] != 2 || versions["more"] != 2 {
		t.Errorf("%+v", handles)
	}
}

func TestOwns(t *testing.T) {
	t.Parallel()
	r := roster.New[*box]("x", 2, t.TempDir())
	for _, h := range []sandbox.Handle{
		{Driver: "y", Version: 1, ID: "a"},
		{Driver: "x", Version: 0, ID: "a"},
		{Driver: "x", Version: 3, ID: "a"},
		{Driver: "x", Version: 1, ID: "../a"},
		{Driver: "x", Version: 1},
	} {
		if err := r.Owns(h); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", h, err)
		}
	}
	if err := r.Owns(sandbox.Handle{Driver: "x", Version: 2, ID: "a"}); err != nil {
		t.Error(err)
	}
}

func TestRecoverMeetsWhatIsNotHere(t *testing.T) {
	t.Parallel()
	r := roster.New[*box]("x", 1, t.TempDir())
	h := sandbox.Handle{Driver: "x", Version: 1, ID: "a"}
	first, met := &box{}, 0
	meet := func() (*box, error) { met++; return first, nil }
	for range 2 {
		if b, err := r.Recover(h, meet); b != first || err != nil || met != 1 {
			t.Fatalf("%v, %v, met %d times", b, err, met)
		}
	}
	first.dead = true
	second := &box{}
	if b, err := r.Recover(h, func() (*box, error) { return second, nil }); b != second || err != nil {
		t.Errorf("a dead one is not met again: %v, %v", b, err)
	}
	second.dead = true
	gone := errors.New("gone")
	if b, err := r.Recover(h, func() (*box, error) { return first, gone }); b != nil || !errors.Is(err, gone) {
		t.Errorf("%v, %v", b, err)
	}
	if _, err := r.Recover(sandbox.Handle{Driver: "y", Version: 1, ID: "a"}, meet); err == nil || met != 1 {
		t.Errorf("a handle of another driver: %v", err)
	}
}

func TestDestroyInterruptsAndRemoves(t *testing.T) {
	t.Parallel()
	r := roster.New[*box]("x", 1, t.TempDir())
	ctx, making, err := r.Begin(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	finished := false
	context.AfterFunc(ctx, func() { finished = true; making.Finish() })
	removed := ""
	err = r.Destroy(t.Context(), sandbox.Handle{Driver: "x", Version: 1, ID: "a"}, func(_ context.Context, id string) error {
		removed = id
		return nil
	})
	if err != nil || !finished || removed != "a" {
		t.Errorf("%v, finished %v, removed %q", err, finished, removed)
	}
	err = r.Destroy(t.Context(), sandbox.Handle{Driver: "x", Version: 1, ID: "../a"}, func(context.Context, string) error {
		t.Error("a path was removed")
		return nil
	})
	if err == nil {
		t.Error("a path is no id")
	}
}
