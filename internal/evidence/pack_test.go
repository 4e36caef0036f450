package evidence

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/aurea-dev/aurea/internal/fault"
)

func write(t testing.TB, dir, name, text string, mode os.FileMode) {
	t.Helper()
	full := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(full, mode); err != nil {
		t.Fatal(err)
	}
}

func packed(t testing.TB, dir, prefix string) (Packed, []byte) {
	t.Helper()
	var b bytes.Buffer
	p, err := Pack(t.Context(), &b, dir, prefix, DefaultBounds())
	if err != nil {
		t.Fatal(err)
	}
	return p, b.Bytes()
}

func headers(t testing.TB, data []byte) (all []*tar.Header, text map[string]string) {
	t.Helper()
	text = map[string]string{}
	r := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, text
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
		text[h.Name] = string(content)
	}
}

func TestPackIsReproducible(t *testing.T) {
	t.Parallel()
	one, two := t.TempDir(), t.TempDir()
	names := []string{"a/x", "a-b", "a.txt", "a/y/z", "ü", "b"}
	for _, n := range names {
		write(t, one, n, "text of "+n, 0o644)
	}
	slices.Reverse(names)
	for _, n := range names {
		write(t, two, n, "text of "+n, 0o600)
		if err := os.Chtimes(filepath.Join(two, n), time.Now(), time.Unix(12345, 0)); err != nil {
			t.Fatal(err)
		}
	}
	p1, tar1 := packed(t, one, "job")
	p2, tar2 := packed(t, two, "job")
	if !bytes.Equal(tar1, tar2) {
		t.Error("equal folders gave different tars")
	}
	sum := sha256.Sum256(tar1)
	if p1.SHA256 != hex.EncodeToString(sum[:]) || p1.Bytes != int64(len(tar1)) {
		t.Errorf("digest or size do not fit the bytes: %+v", p1)
	}
	p3, _ := packed(t, two, "another")
	if p1.TreeDigest != p3.TreeDigest || p2.SHA256 == p3.SHA256 {
		t.Errorf("the tree digest must leave out the prefix: %+v, %+v", p1, p3)
	}
	all, _ := headers(t, tar1)
	var got []string
	for _, h := range all {
		got = append(got, h.Name)
		if !h.ModTime.Equal(time.Unix(0, 0)) || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" {
			t.Errorf("%s carries a time or an owner: %+v", h.Name, h)
		}
	}
	if !slices.IsSorted(got) || got[0] != "job/" {
		t.Errorf("names are not sorted below the prefix: %q", got)
	}
}

func TestTreeDigestTellsTreesApart(t *testing.T) {
	t.Parallel()
	digest := func(fill func(dir string)) string {
		dir := t.TempDir()
		fill(dir)
		p, _ := packed(t, dir, "job")
		return p.TreeDigest
	}
	seen := map[string]string{}
	for name, fill := range map[string]func(dir string){
		"empty":      func(string) {},
		"file":       func(d string) { write(t, d, "a", "x", 0o644) },
		"executable": func(d string) { write(t, d, "a", "x", 0o755) },
		"other text": func(d string) { write(t, d, "a", "y", 0o644) },
		"other name": func(d string) { write(t, d, "b", "x", 0o644) },
		"line feed":  func(d string) { write(t, d, "a\nb", "x", 0o644) },
		"folder":     func(d string) { write(t, d, "a/x", "x", 0o644) },
		"link":       func(d string) { _ = os.Symlink("x", filepath.Join(d, "a")) },
		"other link": func(d string) { _ = os.Symlink("y", filepath.Join(d, "a")) },
	} {
		got := digest(fill)
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q have the same digest", name, other)
		}
		seen[got] = name
	}
}

// A workspace full of traps: nothing blocks, nothing is followed, nothing of
// the host gets in.
func TestPackHostileWorkspace(t *testing.T) {
	t.Parallel()
	dir, secret := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("SECRET"), 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "plain", "p", 0o644)
	write(t, dir, "suid", "s", 0o755|os.ModeSetuid)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Symlink(secret, filepath.Join(dir, "abs")))
	must(os.Symlink("../../../../etc", filepath.Join(dir, "up")))
	must(os.Symlink("self", filepath.Join(dir, "self")))
	must(os.Symlink(".", filepath.Join(dir, "dot")))
	must(os.Link(filepath.Join(dir, "plain"), filepath.Join(dir, "hard")))
	must(syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	must(err)
	defer l.Close()
	device := syscall.Mknod(filepath.Join(dir, "null"), syscall.S_IFCHR|0o666, 1<<8|3) == nil

	p, data := packed(t, dir, "job")
	if bytes.Contains(data, []byte("SECRET")) {
		t.Fatal("a link was followed onto the host")
	}
	all, text := headers(t, data)
	links := map[string]string{}
	for _, h := range all {
		if h.Mode&0o7000 != 0 {
			t.Errorf("%s kept special bits", h.Name)
		}
		if h.Typeflag == tar.TypeSymlink {
			links[h.Name] = h.Linkname
		}
	}
	want := map[string]string{"job/abs": secret, "job/up": "../../../../etc", "job/self": "self", "job/dot": "."}
	if d := cmp.Diff(want, links); d != "" {
		t.Error(d)
	}
	if text["job/hard"] != "p" || text["job/suid"] != "s" {
		t.Errorf("files are missing: %q", text)
	}
	skipped := []string{"fifo: a FIFO", "sock: a socket"}
	if device {
		skipped = []string{"fifo: a FIFO", "null: a device", "sock: a socket"}
	}
	if d := cmp.Diff(skipped, p.Skipped); d != "" {
		t.Error(d)
	}
}

func TestPackBounds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		bounds Bounds
		fill   func(dir string)
	}{
		"entries": {Bounds{Entries: 3, Depth: 9, Bytes: 99}, func(d string) {
			for i := range 4 {
				write(t, d, fmt.Sprint(i), "", 0o644)
			}
		}},
		"depth": {Bounds{Entries: 99, Depth: 3, Bytes: 99}, func(d string) { write(t, d, "a/b/c/d/e", "", 0o644) }},
		"bytes": {Bounds{Entries: 99, Depth: 3, Bytes: 5}, func(d string) {
			write(t, d, "a", "123", 0o644)
			write(t, d, "b", "456", 0o644)
		}},
		"sparse": {DefaultBounds(), func(d string) {
			write(t, d, "a", "", 0o644)
			if err := os.Truncate(filepath.Join(d, "a"), 1<<42); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tc.fill(dir)
			_, err := Pack(t.Context(), io.Discard, dir, "job", tc.bounds)
			if !fault.Is(err, fault.TooLarge) {
				t.Errorf("got %v, want a fault of kind too_large", err)
			}
		})
	}
}

// Many skipped entries are listed up to a bound.
func TestSkipsAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 150 {
		if err := syscall.Mkfifo(filepath.Join(dir, fmt.Sprintf("%03d", i)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, _ := packed(t, dir, "job")
	if len(p.Skipped) != 101 || p.Skipped[100] != "and 50 more" {
		t.Errorf("%d skipped: %q", len(p.Skipped), p.Skipped[len(p.Skipped)-1])
	}
}

// A file that changes its size between the header and the copy still gives a
// tar that can be read.
func TestContentKeepsThePromisedSize(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ is, want string }{
		{"longer than said", "longe"}, {"abc", "abc\x00\x00"}, {"", "\x00\x00\x00\x00\x00"},
	} {
		var b bytes.Buffer
		p := packer{ctx: t.Context(), tar: tar.NewWriter(&b), buf: make([]byte, 4)}
		if err := p.header(node{kind: file, path: "f", mode: 0o644, size: 5}); err != nil {
			t.Fatal(err)
		}
		digest, err := p.content(strings.NewReader(tc.is), 5)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.tar.Close(); err != nil {
			t.Fatal(err)
		}
		_, text := headers(t, b.Bytes())
		sum := sha256.Sum256([]byte(tc.want))
		if text["/f"] != tc.want || digest != hex.EncodeToString(sum[:]) {
			t.Errorf("%q became %q", tc.is, text["/f"])
		}
	}
}

// What is packed and unpacked again is the same tree.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dir, back := t.TempDir(), t.TempDir()
		name := rapid.StringMatching(`[a-c\x01-\x1f "\\é\xff-]{1,3}`)
		for range rapid.IntRange(0, 8).Draw(rt, "files") {
			parts := rapid.SliceOfN(name, 1, 3).Draw(rt, "path")
			full := filepath.Join(append([]string{dir}, parts...)...)
			if os.MkdirAll(filepath.Dir(full), 0o755) != nil {
				continue // below a file
			}
			if rapid.Bool().Draw(rt, "link") {
				_ = os.Symlink(name.Draw(rt, "target"), full)
			} else {
				_ = os.WriteFile(full, rapid.SliceOfN(rapid.Byte(), 0, 700).Draw(rt, "data"), 0o755)
			}
		}
		before, data := packed(t, dir, "job")
		if _, err := Unpack(t.Context(), bytes.NewReader(data), back, DefaultBounds()); err != nil {
			rt.Fatal(err)
		}
		after, _ := packed(t, filepath.Join(back, "job"), "other")
		if before.TreeDigest != after.TreeDigest {
			rt.Fatalf("the tree changed on its way")
		}
	})
}

func TestArchiveNeverOverwrites(t *testing.T) {
	t.Parallel()
	folder, work := filepath.Join(t.TempDir(), "snapshots"), t.TempDir()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(folder, aside+"old")
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := OpenArchive(folder, DefaultBounds())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	write(t, work, "result.txt", "ok", 0o644)
	var got []string
	for _, attempt := range []int{1, 1, 2, 5} {
		s, err := a.Store(t.Context(), "job", attempt, work, nil)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, filepath.Base(s.Path))
		data, err := os.ReadFile(s.Path)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		info, err := os.Stat(s.Path)
		if err != nil || s.SHA256 != hex.EncodeToString(sum[:]) || s.Bytes != int64(len(data)) || info.Mode().Perm() != 0o444 {
			t.Errorf("snapshot %+v does not fit its file (%v, %v)", s, info.Mode(), err)
		}
	}
	if d := cmp.Diff([]string{"job.tar", "job.2.tar", "job.3.tar", "job.5.tar"}, got); d != "" {
		t.Error(d)
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 4 {
		t.Errorf("the folder holds %d entries, %v; want the four snapshots", len(entries), err)
	}
	for _, id := range []string{"", "../x", ".tmp-x", "a/b"} {
		if _, err := a.Store(t.Context(), id, 1, work, nil); !fault.Is(err, fault.Invalid) {
			t.Errorf("id %q gave %v", id, err)
		}
	}
}

func TestArchiveLeavesNothingHalfWritten(t *testing.T) {
	t.Parallel()
	folder, work := t.TempDir(), t.TempDir()
	a, err := OpenArchive(folder, Bounds{Entries: 1, Depth: 1, Bytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	write(t, work, "big", "more than a byte", 0o644)
	if _, err := a.Store(t.Context(), "job", 1, work, nil); !fault.Is(err, fault.TooLarge) {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("stop"))
	write(t, work, "big", "1", 0o644)
	if _, err := a.Store(ended, "job", 1, work, nil); err == nil {
		t.Fatal("an ended context stored a snapshot")
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 0 {
		t.Errorf("left %v, %v", entries, err)
	}
}

func TestArchiveConcurrently(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	write(t, work, "f", "x", 0o644)
	a, err := OpenArchive(t.TempDir(), DefaultBounds())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var wg sync.WaitGroup
	paths := make([]string, 40)
	for i := range paths {
		wg.Go(func() {
			s, err := a.Store(t.Context(), "job", 1, work, nil)
			if err != nil {
				t.Error(err)
			}
			paths[i] = s.Path
		})
	}
	wg.Wait()
	slices.Sort(paths)
	if n := len(slices.Compact(paths)); n != 40 {
		t.Errorf("40 snapshots have %d names", n)
	}
}

// A sync answers only those who came before it began.
func TestGroupSyncCoversItsCallers(t *testing.T) {
	t.Parallel()
	begin, release := make(chan struct{}, 10), make(chan struct{})
	g := groupSync{do: func() error { begin <- struct{}{}; <-release; return nil }}
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Do() })
	<-begin
	late := make(chan struct{})
	wg.Go(func() { _ = g.Do(); close(late) })
	release <- struct{}{}
	<-begin // a second sync was begun for the late caller
	select {
	case <-late:
		t.Error("the late caller was answered by a sync that began before it came")
	default:
	}
	release <- struct{}{}
	wg.Wait()
}

func BenchmarkStore(b *testing.B) {
	work := b.TempDir()
	write(b, work, "result.txt", "ok", 0o644)
	a, err := OpenArchive(b.TempDir(), DefaultBounds())
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			id := fmt.Sprintf("%x", time.Now().UnixNano())
			if _, err := a.Store(b.Context(), id, 1, work, nil); err != nil {
				b.Error(err)
			}
		}
	})
}
