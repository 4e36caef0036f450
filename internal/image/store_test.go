package image

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func TestNamesOfImages(t *testing.T) {
	t.Parallel()
	s, ctx := open(t), t.Context()
	root := layerOf(t, file("which", "one"))
	r, err := s.ImportArchive(ctx, bytes.NewReader(root), "one", "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.ImportArchive(ctx, bytes.NewReader(layerOf(t, file("which", "two"))), "two", "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Tag(ctx, "one", "tagged:1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Alias(ctx, "registry.example/thing", "one"); err != nil {
		t.Fatal(err)
	}
	if err := s.Alias(ctx, "chain", "registry.example/thing"); err != nil {
		t.Fatal(err)
	}
	if err := s.Alias(ctx, "one", "chain"); !fault.Is(err, fault.Conflict) {
		t.Errorf("a circle: %v", err)
	}
	if err := s.Alias(ctx, "me", "me"); !fault.Is(err, fault.Conflict) {
		t.Errorf("itself: %v", err)
	}
	if err := s.Alias(ctx, "host", "one"); !fault.Is(err, fault.Invalid) {
		t.Errorf("the host: %v", err)
	}
	for _, name := range []string{"one", "one:latest", "tagged:1", "registry.example/thing:latest", "chain", r.Digest} {
		if got := rootOf(t, s, name)["/which"]; got != "644 0 one" {
			t.Errorf("%s: %q", name, got)
		}
	}
	// An alias follows, a tag stays.
	if err := s.Tag(ctx, "two", "one"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"chain": other.Digest, "tagged:1": r.Digest} {
		if got, err := s.Find(name); err != nil || got.Digest != want {
			t.Errorf("%s: %s, %v", name, got.Digest, err)
		}
	}
	if got, err := s.FindShort(hexOf(r.Digest)[:10]); err != nil || got.Digest != r.Digest {
		t.Errorf("%v, %v", got, err)
	}
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range list {
		names = append(names, l.Name+">"+l.Follows)
		if !l.Ready {
			t.Errorf("%+v", l)
		}
	}
	if diff := cmp.Diff([]string{"chain:latest>registry.example/thing:latest", "one:latest>", "registry.example/thing:latest>one:latest", "tagged:1>", "two:latest>"}, names); diff != "" {
		t.Error(diff)
	}
	d, err := s.Inspect("tagged:1")
	if err != nil || d.Digest != r.Digest || !cmp.Equal(d.Names, []string{"tagged:1"}) || d.RootBytes == 0 {
		t.Errorf("%+v, %v", d, err)
	}
	for _, name := range []string{"nothing", "tagged:2"} {
		if err := s.Remove(ctx, name); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGC(t *testing.T) {
	t.Parallel()
	s, ctx := open(t), t.Context()
	add := func(name string) sandbox.Image {
		if _, err := s.ImportArchive(ctx, bytes.NewReader(layerOf(t, file("which", name))), name, "test", nil); err != nil {
			t.Fatal(err)
		}
		img, err := s.Resolve(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	stays, follows, goes, listed, runs := add("stays"), add("follows"), add("goes"), add("listed"), add("runs")
	if err := s.Alias(ctx, "alias", follows.Digest); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"goes", "listed", "runs", "follows"} {
		if err := s.Remove(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(runs.Root) // as its sandbox has
	if err != nil {
		t.Fatal(err)
	}
	dry, err := s.GC(ctx, []string{listed.Root}, true)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.GC(ctx, []string{listed.Root}, false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(dry, got); diff != "" || len(got.Images) != 3 || got.Roots != 1 || got.InUse != 2 || got.Blobs != 9 || got.Bytes == 0 {
		t.Errorf("%+v %s", got, diff)
	}
	for root, there := range map[string]bool{stays.Root: true, follows.Root: true, goes.Root: false, listed.Root: true, runs.Root: true} {
		if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) == there {
			t.Errorf("%s: %v", root, err)
		}
	}
	_ = f.Close()
	if got, err := s.GC(ctx, nil, false); err != nil || got.Roots != 2 || got.InUse != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if got := rootOf(t, s, "stays")["/which"]; got != "644 0 stays" {
		t.Error(got)
	}
}

// Roots as an earlier release made them, with a guest inside, are made anew and
// then collected.
func TestEarlierRoots(t *testing.T) {
	t.Parallel()
	s, ctx := open(t, func(c *Config) { c.Host = aHost(t) }), t.Context()
	if _, err := s.ImportArchive(ctx, bytes.NewReader(layerOf(t, file("a", "1"))), "x", "test", nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x", "host"} {
		img, err := s.Resolve(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(img.Root, filepath.Join(filepath.Dir(img.Root), hexOf(img.Digest)+"-0123456789abcdef.erofs")); err != nil {
			t.Fatal(err)
		}
	}
	for name, path := range map[string]string{"x": "/a", "host": "/usr/bin/python3"} {
		if got := rootOf(t, s, name); got[path] == "" || got["/.aurea"] != "755 0 /" {
			t.Errorf("%s: %q, %q", name, got[path], got["/.aurea"])
		}
	}
	if got, err := s.GC(ctx, nil, false); err != nil || got.Roots != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}

var _ io.Reader = patient{}
