package evidence

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/fault"
)

type item struct {
	h    tar.Header
	text string
}

func stream(t testing.TB, items ...item) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, it := range items {
		it.h.Size = int64(len(it.text))
		if it.h.Mode == 0 {
			it.h.Mode = 0o644
		}
		if err := w.WriteHeader(&it.h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(it.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func regular(name, text string) item {
	return item{tar.Header{Name: name, Typeflag: tar.TypeReg}, text}
}

func symlink(name, target string) item {
	return item{tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink}, ""}
}

func special(name string, flag byte) item {
	return item{tar.Header{Name: name, Typeflag: flag, Linkname: map[byte]string{tar.TypeLink: "ok"}[flag]}, ""}
}

func TestUnpackHostileStream(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir := filepath.Join(parent, "workspace")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	data := stream(t,
		special("./", tar.TypeDir), regular("ok", "fine"), regular("deep/er/file", "x"),
		regular("/abs", "bad"), regular("../up", "bad"), regular("a/../../up", "bad"),
		symlink("out", ".."), regular("out/escaped", "bad"),
		symlink("abslink", "/etc"), regular("abslink/cron.d/x", "bad"),
		regular("ok", "again"), regular("ok/below", "bad"),
		special("dev", tar.TypeChar), special("fifo", tar.TypeFifo), special("hard", tar.TypeLink),
		item{tar.Header{Name: "suid", Typeflag: tar.TypeReg, Mode: 0o4755}, "s"},
		regular(strings.Repeat("n", 300), "bad"),
	)
	got, err := Unpack(t.Context(), bytes.NewReader(data), dir, DefaultBounds())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/abs: an absolute path", "../up: a path that leaves the workspace", "a/../../up: a path that leaves the workspace",
		"out/escaped: below something that is not a folder", "abslink/cron.d/x: below something that is not a folder",
		"ok: a second entry of this name", "ok/below: below something that is not a folder",
		"dev: a device", "fifo: a FIFO", "hard: a hard link",
		strings.Repeat("n", 200) + "...: the name is too long",
	}
	if d := cmp.Diff(want, got.Skipped); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"workspace"}, entries(t, parent)); d != "" {
		t.Error("something escaped:", d)
	}
	if d := cmp.Diff([]string{"abslink", "deep", "ok", "out", "suid"}, entries(t, dir)); d != "" {
		t.Error(d)
	}
	if info, err := os.Lstat(filepath.Join(dir, "suid")); err != nil || info.Mode() != 0o755 {
		t.Errorf("mode is %v, %v", info.Mode(), err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "ok")); err != nil || string(text) != "fine" {
		t.Errorf("the first entry of a name must stay: %q, %v", text, err)
	}
}

// TestUnpackTwinNames brings names that are one on some systems: none takes the
// place of another, and none is lost.
func TestUnpackTwinNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := stream(t,
		regular("readme", "1"), regular("README", "2"), regular("caf\u00e9", "3"), regular("cafe\u0301", "4"),
		regular("./readme", "6"), regular("x//readme", "7"), regular("x/readme", "8"),
	)
	got, err := Unpack(t.Context(), bytes.NewReader(data), dir, DefaultBounds())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, name := range []string{"readme", "README", "caf\u00e9", "cafe\u0301", "x/readme"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		found[name] = string(text)
	}
	want := map[string]string{"readme": "1", "README": "2", "caf\u00e9": "3", "cafe\u0301": "4", "x/readme": "7"}
	if d := cmp.Diff(want, found); d != "" {
		t.Error(d)
	}
	if len(got.Skipped) != 2 {
		t.Errorf("skipped %q, want the two that came late", got.Skipped)
	}
}

func entries(t testing.TB, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

func TestUnpackBounds(t *testing.T) {
	t.Parallel()
	huge := tar.Header{Name: "huge", Typeflag: tar.TypeReg, Size: 1 << 50, Mode: 0o644}
	var claims bytes.Buffer
	if err := tar.NewWriter(&claims).WriteHeader(&huge); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		data   []byte
		bounds Bounds
		want   fault.Kind
	}{
		"bytes":     {stream(t, regular("a", "1234")), Bounds{9, 9, 3}, fault.TooLarge},
		"claimed":   {claims.Bytes(), DefaultBounds(), fault.TooLarge},
		"entries":   {stream(t, regular("a", ""), regular("b", "")), Bounds{1, 9, 9}, fault.TooLarge},
		"skipped":   {stream(t, special("a", tar.TypeFifo), special("b", tar.TypeFifo)), Bounds{1, 9, 9}, fault.TooLarge},
		"parents":   {stream(t, regular("a/b/c/d", "")), Bounds{3, 9, 9}, fault.TooLarge},
		"depth":     {stream(t, regular("a/b/c/d", "")), Bounds{99, 2, 9}, fault.TooLarge},
		"cut":       {stream(t, regular("a", strings.Repeat("x", 2000)))[:1000], DefaultBounds(), fault.Invalid},
		"no tar":    {[]byte(strings.Repeat("nonsense", 200)), DefaultBounds(), fault.Invalid},
		"cut early": {stream(t, regular("a", ""))[:100], DefaultBounds(), fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := Unpack(t.Context(), bytes.NewReader(tc.data), t.TempDir(), tc.bounds); !fault.Is(err, tc.want) {
				t.Errorf("got %v, want a fault of kind %v", err, tc.want)
			}
		})
	}
}

// Whatever comes, nothing appears outside the folder, nothing in it is of a
// kind that could harm, and it can be packed.
func FuzzUnpack(f *testing.F) {
	f.Add(stream(f, regular("a", "x"), symlink("b", ".."), regular("b/c", "y"), special("d", tar.TypeBlock)))
	f.Add(stream(f, regular("../a", "x"), regular("/etc/passwd", "x"), special("a/./b//c", tar.TypeDir)))
	f.Add(stream(f, symlink("l", "/"), symlink("l/x", "/"), special("l", tar.TypeDir)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "w")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		bounds := Bounds{Entries: 50, Depth: 5, Bytes: 1 << 16}
		got, err := Unpack(t.Context(), bytes.NewReader(data), dir, bounds)
		if got.Bytes > bounds.Bytes {
			t.Errorf("%d bytes over the bound", got.Bytes)
		}
		if fault.KindOf(err) == fault.Internal && err != nil {
			t.Errorf("hostile bytes gave an internal error: %v", err)
		}
		if names := entries(t, parent); len(names) != 1 {
			t.Errorf("something escaped: %q", names)
		}
		if err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
			if k := e.Type(); k != 0 && k != fs.ModeDir && k != fs.ModeSymlink {
				t.Errorf("%s is %v", e.Name(), k)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		if _, err := Pack(t.Context(), &bytes.Buffer{}, dir, "job", DefaultBounds()); err != nil {
			t.Errorf("cannot be packed: %v", err)
		}
	})
}
