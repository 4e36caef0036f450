package gvisor_test

import (
	"cmp"
	"context"
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
	"github.com/aurea-dev/aurea/internal/driver/gvisor/gvisortest"
	"github.com/aurea-dev/aurea/internal/fault"
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

// moved is an image whose name has come to stand for another.
type moved struct {
	gvisortest.Images
	digest string
}

func (i moved) Resolve(ctx context.Context, name string) (sandbox.Image, error) {
	image, err := i.Images.Resolve(ctx, name)
	image.Digest = i.digest
	return image, err
}

// moveTo copies the image into a folder.
func moveTo(t *testing.T, folder, digest string) moved {
	t.Helper()
	body, err := os.ReadFile(images.Root)
	root := filepath.Join(folder, "root.erofs")
	if err := errors.Join(err, os.WriteFile(root, body, 0o400)); err != nil {
		t.Fatal(err)
	}
	return moved{gvisortest.Images{Root: root}, digest}
}

// A snapshot goes on when the image that it was taken over is gone, and its name
// stands for another; when sentry and guest are of another release; and again as
// a snapshot of what went on.
func TestSnapshotOutlivesUpgrades(t *testing.T) {
	t.Parallel()
	folder := stateDir(t)
	older := newer(t, folder, "old")
	older.Images = moveTo(t, t.TempDir(), "sha256:old")
	d := openWith(t, older)
	b := drivertest.Create(t, d, sandbox.Spec{})
	first := digestsOf(t, b)
	p := begin(t, b, sandbox.ExecSpec{Command: []string{"sh", "-c", counting}})
	var at sandbox.Offsets
	var rest string
	next, err := count(p, &at, 0, 3, &rest)
	if err != nil {
		t.Fatal(err)
	}
	for round, mark := range []string{"new", "newer"} {
		where, made := snapshot(t, b, sandbox.SnapshotOptions{Aside: true})
		if made.Offsets[p.ID()].Stdout < at.Stdout {
			t.Errorf("round %d: saved at %+v, read to %+v", round, made.Offsets[p.ID()], at)
		}
		drivertest.Destroy(t, d, b)
		d.Close()
		for _, path := range []string{older.Sentry, older.Guest, older.Images.(moved).Root} {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		older = newer(t, folder, mark)
		older.Images = moveTo(t, t.TempDir(), "sha256:"+mark)
		d = openWith(t, older)
		if slices.ContainsFunc(kept(t, folder), func(digest string) bool { return slices.Contains(first, digest) }) {
			t.Fatalf("round %d: what nothing needs is kept: %q", round, kept(t, folder))
		}
		b = drivertest.Create(t, d, sandbox.Spec{Restore: where})
		if err := os.RemoveAll(where); err != nil {
			t.Fatal(err)
		}
		if _, digest := b.(sandbox.Imaged).Image(); digest != "sha256:old" || !slices.Equal(digestsOf(t, b), first) {
			t.Errorf("round %d: it stands on %s, %q", round, digest, digestsOf(t, b))
		}
		p = attach(t, b, p.ID(), at)
		if next, err = count(p, &at, next, next+3, &rest); err != nil {
			t.Fatal(err)
		}
		if got := say(t, b, "echo $FROM_IMAGE"); got != "yes" {
			t.Errorf("round %d: its image says %q", round, got)
		}
	}
	fresh := drivertest.Create(t, d, sandbox.Spec{})
	if _, digest := fresh.(sandbox.Imaged).Image(); digest != "sha256:newer" || slices.Equal(digestsOf(t, fresh), first) {
		t.Errorf("a new one stands on %s, %q", digest, digestsOf(t, fresh))
	}
	drivertest.Destroy(t, d, fresh)
	drivertest.Destroy(t, d, b)
	d.Close()
}

// A snapshot whose needs are gone is refused, and says what is missing.
func TestSnapshotWithoutWhatItNeeds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		gone string
		mark string
		want string
	}{
		"its image":  {"image.erofs", "", "another image"},
		"its sentry": {"aurea-sentry", "new", "another release"},
		"its guest":  {"guest.erofs", "new", "another release"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := stateDir(t)
			older := newer(t, folder, "old")
			older.Images = moveTo(t, t.TempDir(), "sha256:old")
			d := openWith(t, older)
			b := drivertest.Create(t, d, sandbox.Spec{})
			where, _ := snapshot(t, b, sandbox.SnapshotOptions{})
			drivertest.Destroy(t, d, b)
			d.Close()
			if err := os.Remove(filepath.Join(where, "along", test.gone)); err != nil {
				t.Fatal(err)
			}
			later := newer(t, folder, cmp.Or(test.mark, "old"))
			d = openWith(t, later)
			defer d.Close()
			_, err := d.Create(t.Context(), sandbox.Spec{ID: "later", Restore: where}, func(sandbox.Handle) error { return nil })
			if fault.CodeOf(err) != sandbox.CodeSnapshotMismatch || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v", err)
			}
		})
	}
}
