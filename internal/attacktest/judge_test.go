package attacktest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// settled compares the host with the picture before. What a killed process
// leaves the kernel to end may take a moment on a busy machine, and no longer.
func (s *stand) settled(t *testing.T, before host) {
	t.Helper()
	const moment = 5 * time.Second
	began := time.Now()
	for {
		after := look(t, s.state, s.bait, s.neighbour.ID())
		if slices.Equal(before.processes, after.processes) || time.Since(began) > moment {
			before.same(t, after)
			return
		}
		t.Logf("not gone %s after the sandbox was destroyed: %q", time.Since(began).Round(time.Millisecond), after.processes)
		time.Sleep(100 * time.Millisecond) // between two looks, until the moment is over
	}
}

// gone reports whether a sandbox has ended with its attack. One that is about
// to gets a moment.
func gone(box *sandbox.Sandbox) bool {
	const moment = 2 * time.Second
	select {
	case <-box.Done():
		return true
	case <-time.After(moment):
		return false
	}
}

// alive reports whether a verdict leaves the sandbox alive: running out of
// memory ends all of it.
func alive(v sandbox.Verdict) bool { return v != sandbox.OOM }

func (s *stand) judge(t *testing.T, r *trial) {
	t.Helper()
	a, result := r.attack, r.result
	if want := a.verdicts(s.driver.Name()); !slices.Contains(want, result.Verdict) {
		t.Errorf("verdict %s (%s, code %d), want one of %v", result.Verdict, result.Cause, result.Exit.Code, want)
	}
	text := r.out.text()
	stopped := 0
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "THROUGH"):
			t.Error(strings.TrimSpace(line))
		case strings.HasPrefix(line, "STOPPED"):
			stopped++
		}
	}
	if stopped == 0 && !a.Silent && result.Verdict != sandbox.OOM {
		t.Errorf("it tried nothing: %s", r.out.brief())
	}
	if a.Truncated && (!result.Stdout.Truncated || !result.Stderr.Truncated || result.Stdout.Kept > outputCap || result.Stderr.Kept > outputCap) {
		t.Errorf("the output was not cut: %+v %+v", result.Stdout, result.Stderr)
	}
	if strings.Contains(text, s.mark) && !slices.Contains(a.Command, "{mark}") {
		t.Error("the mark of the host was printed")
	}
}

// Scripts that succeed when nothing of an attack is alive, or writes.
const (
	noSurvivors = `n=0; for f in /proc/[0-9]*/cmdline; do case "$(tr '\0' ' ' <$f 2>/dev/null)" in survivor*|*ORP"HAN"*) n=$((n+1));; esac; done; test $n = 0`
	isQuiet     = `a=$(wc -c </workspace/growing); sleep 0.3; test "$a" = "$(wc -c </workspace/growing)"`
)

// afterwards is what has to hold in the sandbox that was attacked from inside.
func (s *stand) afterwards(t *testing.T, r *trial) {
	t.Helper()
	for _, then := range r.attack.Then {
		switch then {
		case "collect":
			s.collect(t, r.box, r.attack.Collected)
		case "survivors":
			s.answers(t, r.box, "survivors", noSurvivors)
		case "quiet":
			s.answers(t, r.box, "quiet", isQuiet)
		case "share":
			s.share(t, r)
		case "ended":
			s.ended(t, r)
		case "reuse":
			s.reuse(t, r)
		default:
			t.Errorf("nobody knows how to %q", then)
		}
	}
	if r.result.Verdict == sandbox.Limit {
		// It may run nothing any more, but what it has made can be taken out.
		s.collect(t, r.box, 0)
		return
	}
	s.answers(t, r.box, "the sandbox itself", "true")
}

// share demands that the sandbox had no more than its share of the processors.
// How much it got of that is up to who else works on the machine.
func (s *stand) share(t *testing.T, r *trial) {
	t.Helper()
	used, err := r.box.Usage(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	const slack = 300 * time.Millisecond // of the kernel's accounts
	lasted := time.Since(r.began)
	most := lasted*time.Duration(r.box.Enforced().MilliCPU)/1000 + slack
	t.Logf("used %s in %s", used.CPU, lasted)
	if used.CPU > most || used.CPU < r.attack.Limits.CPUTime {
		t.Errorf("it used %s of processor time in %s, want at most %s and at least its limit", used.CPU, lasted, most)
	}
}

// ended demands that nothing is heard of an exec after its end, although a
// descendant of it talks on; and that it still can be killed.
func (s *stand) ended(t *testing.T, r *trial) {
	t.Helper()
	before := r.out.size()
	if v := s.run(t, r.box, sandbox.ExecSpec{Command: []string{"sh", "-c", noSurvivors}}).Verdict; v != sandbox.Failed {
		t.Errorf("the orphan is gone by itself, which proves nothing: %s", v)
	}
	if after := r.out.size(); after != before {
		t.Errorf("%d bytes were heard after the end", after-before)
	}
	if r.result.Stdout.Kept > outputCap {
		t.Errorf("%d bytes were kept", r.result.Stdout.Kept)
	}
	if err := r.exec.Signal(t.Context(), 9, true); err != nil {
		t.Errorf("kill the tree of an ended exec: %v", err)
	}
	s.answers(t, r.box, "survivors", noSurvivors)
}

// reuse has somebody take the number of the exec that has ended, and then kills
// the exec: it must be nobody's harm.
func (s *stand) reuse(t *testing.T, r *trial) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("no answer"))
	defer cancel()
	var out output
	spec := sandbox.ExecSpec{Command: []string{"./attack", "number", "take"}, Env: map[string]string{"AUREA_ATTACK": "1"}, Stdin: true}
	taker, err := r.box.Exec(ctx, spec, sandbox.ExecOptions{Timeout: patience, Sink: &out})
	if err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(out.text(), "TAKEN") {
		select {
		case <-taker.Done():
		case <-time.After(10 * time.Millisecond):
			continue
		}
		break
	}
	for _, tree := range []bool{false, true} {
		if err := r.exec.Signal(ctx, 9, tree); err != nil {
			t.Logf("signal to an ended exec: %v", err)
		}
	}
	_ = taker.Write(ctx, []byte("x")) // it may have given up
	result, err := taker.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(out.brief())
	switch text := out.text(); {
	case strings.Contains(text, "NOT TAKEN") && result.Verdict == sandbox.OK:
		r.note = "not run: the sandbox's kernel does not give a number again so soon"
	case !strings.Contains(text, "STOPPED reuse") || result.Verdict != sandbox.OK:
		t.Errorf("%s: %s", result.Verdict, text)
	}
}

// collect takes the workspace out as a worker does, within bounds, and looks
// whether anything of the host came with it. want is how many entries must come
// out, as they are; 0 is any number.
func (s *stand) collect(t *testing.T, box *sandbox.Sandbox, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("the workspace was not collected"))
	defer cancel()
	dir := t.TempDir()
	from, to := io.Pipe()
	var got sync.WaitGroup
	got.Go(func() { to.CloseWithError(box.Get(ctx, "/workspace", to)) })
	_, err := evidence.Unpack(ctx, from, dir, evidence.Bounds{Entries: 10_000, Depth: 64, Bytes: 64 << 20})
	_ = from.CloseWithError(io.ErrClosedPipe)
	got.Wait()
	if ctx.Err() != nil {
		t.Error(context.Cause(ctx))
	}
	if err != nil {
		// Too large, or changed while it was read: an answer, not a harm.
		t.Logf("collect: %v (%s)", err, fault.CodeOf(err))
	}
	entries := -1 // the folder itself
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		entries++
		if !d.Type().IsRegular() {
			if d.Type()&^(fs.ModeDir|fs.ModeSymlink) != 0 {
				t.Errorf("a %v came out as %s", d.Type(), path)
			}
			return nil
		}
		body, err := os.ReadFile(path)
		if err == nil && bytes.Contains(body, []byte(s.mark)) {
			t.Errorf("%s holds a file of the host", path)
		}
		if info, _ := d.Info(); info != nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			t.Errorf("%s is set-id", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if want > 0 && entries != want {
		t.Errorf("%d entries were collected, want %d", entries, want)
	}
}
