package gvisor_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/driver/gvisor"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// newer copies the binaries with something behind their ends: other files that
// do the same.
func newer(t *testing.T, folder, mark string) gvisor.Config {
	t.Helper()
	needRoot(t)
	config := gvisor.Config{StateDir: folder}
	for name, to := range map[string]*string{"aurea-sentry": &config.Sentry, "aurea-guest": &config.Guest} {
		body, err := os.ReadFile(filepath.Join(binaries, name))
		if err != nil {
			t.Fatal(err)
		}
		*to = filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(*to, append(body, mark...), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return config
}

// digestsOf are those of the sentry and the guest in a handle.
func digestsOf(t *testing.T, b sandbox.Box) []string {
	t.Helper()
	var state struct{ Sentry, Guest string }
	if err := json.Unmarshal(b.Handle().State, &state); err != nil || len(state.Sentry) != 64 || len(state.Guest) != 64 {
		t.Fatalf("the handle says %s, %v", b.Handle().State, err)
	}
	return []string{state.Sentry, state.Guest}
}

// kept lists the digests of the binaries in a state folder, in order.
func kept(t *testing.T, folder string) []string {
	t.Helper()
	sentries, err := filepath.Glob(filepath.Join(folder, "*", "aurea-sentry"))
	if err != nil {
		t.Fatal(err)
	}
	guests, err := filepath.Glob(filepath.Join(folder, "*", "guest.erofs"))
	if err != nil {
		t.Fatal(err)
	}
	found := append(sentries, guests...)
	for i, path := range found {
		found[i] = filepath.Base(filepath.Dir(path))
	}
	slices.Sort(found)
	return found
}

// A worker with a newer sentry and guest goes on with the sandboxes of older
// ones, whose binaries stay for as long as one of them does.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	folder := stateDir(t)
	older := newer(t, folder, "old")
	d := openWith(t, older)
	old := drivertest.Create(t, d, sandbox.Spec{})
	first := digestsOf(t, old)
	if _, err := old.Exec(t.Context(), sandbox.ExecSpec{ID: "long", Command: []string{"sh", "-c", "read x; echo $x; exit 5"}, Stdin: true}); err != nil {
		t.Fatal(err)
	}
	d.Close()
	for _, path := range []string{older.Sentry, older.Guest} { // as an upgrade does
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}

	d = openWith(t, newer(t, folder, "new"))
	b, err := d.Recover(t.Context(), old.Handle())
	if err != nil {
		t.Fatal(err)
	}
	if name, digest := b.(sandbox.Imaged).Image(); name != "host" || digest != "sha256:0" {
		t.Errorf("it stands on %s, %s", name, digest)
	}
	p, err := b.Attach(t.Context(), "long", sandbox.Offsets{})
	if err != nil {
		t.Fatal(err)
	}
	fresh := drivertest.Create(t, d, sandbox.Spec{})
	second := digestsOf(t, fresh)
	both := slices.Sorted(slices.Values(slices.Concat(first, second)))
	if len(slices.Compact(both)) != 4 || !slices.Equal(digestsOf(t, b), first) || !slices.Equal(kept(t, folder), both) {
		t.Errorf("%s, then %s; kept are %q", first, second, kept(t, folder))
	}
	running, err := os.Readlink("/proc/" + strconv.Itoa(made(t, folder, b).Sentry.PID) + "/exe")
	if err != nil || !strings.Contains(running, first[0]) {
		t.Errorf("the old one runs %s, %v", running, err)
	}
	if err := p.Write(t.Context(), []byte("on\n")); err != nil {
		t.Fatal(err)
	}
	if f, err := p.Next(t.Context()); err != nil || string(f.Data) != "on\n" {
		t.Errorf("%q, %v", f.Data, err)
	}
	if _, err := p.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 5 {
		t.Errorf("%+v, %v", exit, err)
	}
	drivertest.Destroy(t, d, b)
	drivertest.Destroy(t, d, fresh)
	d.Close()

	d = openWith(t, newer(t, folder, "newest"))
	defer d.Close()
	now := kept(t, folder)
	if len(now) != 2 || slices.ContainsFunc(now, func(digest string) bool { return slices.Contains(both, digest) }) {
		t.Errorf("kept are %q", now)
	}
}
