package erofs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	reader "github.com/erofs/go-erofs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	gvisor "gvisor.dev/gvisor/pkg/erofs"
	"pgregory.net/rapid"

	"github.com/aurea-dev/aurea/internal/image/erofs"
)

// described is what a reader finds under a path.
type described struct {
	Mode     uint16
	UID, GID uint32
	Mtime    int64
	Links    uint32
	Same     string // the first path of the same inode
	Content  string // or a link's target
}

func write(t testing.TB, fill func(w *erofs.Writer) *erofs.Node) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := erofs.NewWriter(f)
	if err := w.Finish(fill(w)); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

func file(t testing.TB, w *erofs.Writer, content string) *erofs.Node {
	t.Helper()
	d, err := w.Append(strings.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	return &erofs.Node{Mode: erofs.Regular | 0o640, UID: 70000, GID: 7, Mtime: 1700000000, MtimeNs: 5, Data: d}
}

func link(target string) *erofs.Node {
	return &erofs.Node{Mode: erofs.Link | 0o777, Target: target}
}

// sample has the shapes at which layouts break: names around the edges of
// blocks, folders of many blocks, names that sort before the dots, empty and
// block-sized files, long links, hard links.
func sample(t testing.TB, w *erofs.Writer) *erofs.Node {
	root := erofs.NewFolder(0o755)
	root.Entries["empty"] = file(t, w, "")
	root.Entries["small"] = file(t, w, "hello")
	root.Entries["block"] = file(t, w, strings.Repeat("b", 4096))
	root.Entries["more"] = file(t, w, strings.Repeat("m", 3*4096+1))
	root.Entries["again"] = root.Entries["small"]
	root.Entries["!before the dots"] = file(t, w, "!")
	root.Entries["\xff\xfe"] = file(t, w, "not a text")
	root.Entries["link"] = link("small")
	root.Entries["long"] = link(strings.Repeat("x", 4095))
	root.Entries["tight"] = link(strings.Repeat("y", 4032))
	root.Entries["loose"] = link(strings.Repeat("z", 4033))
	many := erofs.NewFolder(0o1777)
	many.UID = 1000
	for i := range 3000 {
		many.Entries[fmt.Sprintf("n%d%s", i, strings.Repeat("-", i%240))] = link(fmt.Sprint(i + 1))
	}
	many.Entries["twin"] = root.Entries["small"]
	root.Entries["many"] = many
	deep := root
	for range 40 {
		next := erofs.NewFolder(0o700)
		deep.Entries["d"] = next
		deep = next
	}
	deep.Entries["end"] = file(t, w, "of the way")
	for n := range 60 { // around the size at which a folder leaves its inode
		full := erofs.NewFolder(0o755)
		for i := range 14 {
			full.Entries[fmt.Sprintf("%02d%s", i, strings.Repeat("f", 253))] = root.Entries["empty"]
		}
		full.Entries["last"+strings.Repeat("l", 150+n)] = root.Entries["empty"]
		root.Entries[fmt.Sprintf("full%d", n)] = full
	}
	return root
}

// describe is what readers should find below a tree.
func describe(t testing.TB, w *erofs.Writer, root *erofs.Node) map[string]described {
	t.Helper()
	found, first, links := map[string]described{}, map[*erofs.Node]string{}, map[*erofs.Node]uint32{}
	var walk func(name string, n *erofs.Node)
	walk = func(name string, n *erofs.Node) {
		links[n]++
		if _, ok := first[n]; !ok {
			first[n] = name
		}
		if n.IsFolder() {
			links[n]++
			for _, child := range slices.Sorted(maps.Keys(n.Entries)) {
				if n.Entries[child].IsFolder() {
					links[n]++
				}
				walk(path.Join(name, child), n.Entries[child])
			}
		}
		d := described{Mode: n.Mode, UID: n.UID, GID: n.GID, Mtime: n.Mtime, Same: first[n], Content: n.Target}
		if n.IsRegular() {
			b, err := io.ReadAll(w.From(n.Data))
			if err != nil {
				t.Fatal(err)
			}
			d.Content = string(b)
		}
		found[name] = d
	}
	walk("/", root)
	byPath := map[string]uint32{}
	for n, name := range first {
		byPath[name] = links[n]
	}
	for name, d := range found {
		d.Links = byPath[d.Same]
		found[name] = d
	}
	return found
}

// asGVisor reads an image as a sandbox does.
func asGVisor(t testing.TB, name string) map[string]described {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	image, err := gvisor.OpenImage(f)
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	found, first := map[string]described{}, map[uint64]string{}
	var walk func(name string, nid uint64)
	walk = func(name string, nid uint64) {
		n, err := image.Inode(nid)
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if _, ok := first[nid]; !ok {
			first[nid] = name
		}
		d := described{Mode: n.Mode(), UID: n.UID(), GID: n.GID(), Mtime: int64(n.Mtime()), Links: n.Nlink(), Same: first[nid]}
		switch {
		case n.IsDir():
			err = n.IterDirents(func(child string, _ uint8, nid uint64) error {
				if child == "." || child == ".." {
					return nil
				}
				if got, err := n.Lookup(child); err != nil || got != nid {
					t.Errorf("look up %q in %q: %d, %v", child, name, got, err)
				}
				walk(path.Join(name, child), nid)
				return nil
			})
			if _, missing := n.Lookup("nobody is called so"); missing == nil {
				t.Errorf("%q has a name that nobody gave", name)
			}
		case n.IsSymlink():
			d.Content, err = n.Readlink()
		default:
			offset, failed := n.DataOffset() // what mmap needs
			if failed != nil || offset%4096 != 0 {
				t.Errorf("%q cannot be mapped: %d, %v", name, offset, failed)
			}
			ranges, failed := n.DataRanges()
			d.Content, err = string(ranges[0].Bytes), failed
		}
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		found[name] = d
	}
	walk("/", image.RootNid())
	return found
}

func TestGVisorReads(t *testing.T) {
	t.Parallel()
	var want map[string]described
	name := write(t, func(w *erofs.Writer) *erofs.Node {
		root := sample(t, w)
		want = describe(t, w, root)
		return root
	})
	if diff := cmp.Diff(want, asGVisor(t, name)); diff != "" {
		t.Error(diff)
	}
}

func TestAnotherReaderReads(t *testing.T) {
	t.Parallel()
	var want map[string]described
	name := write(t, func(w *erofs.Writer) *erofs.Node {
		root := sample(t, w)
		want = describe(t, w, root)
		return root
	})
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	image, err := reader.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	err = fs.WalkDir(image, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		seen++
		d, ok := want[path.Join("/", name)]
		if !ok {
			return fmt.Errorf("%q was not written", name)
		}
		if e.Type().IsRegular() {
			b, err := fs.ReadFile(image, name)
			if err != nil || string(b) != d.Content {
				return fmt.Errorf("%q holds %d bytes: %w", name, len(b), err)
			}
		}
		return nil
	})
	if err != nil || seen != len(want) {
		t.Errorf("%d of %d: %v", seen, len(want), err)
	}
}

// The kernel's own reader is the strictest.
func TestLinuxReads(t *testing.T) {
	t.Parallel()
	kinds, _ := os.ReadFile("/proc/filesystems")
	if os.Geteuid() != 0 || !bytes.Contains(kinds, []byte("\terofs\n")) {
		t.Skip("mounting an image needs root and a kernel with EROFS")
	}
	var want map[string]described
	name := write(t, func(w *erofs.Writer) *erofs.Node {
		root := sample(t, w)
		want = describe(t, w, root)
		return root
	})
	dir := t.TempDir()
	// A mount namespace of its own: whatever happens, nothing stays mounted.
	out, err := exec.Command("unshare", "-m", "sh", "-c",
		`mount -t erofs -o ro,loop "$0" "$1" && cd "$1" && find . -printf '%p\0%m\0%U\0%n\0%s\0'`, name, dir).Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			t.Skipf("this machine mounts no image: %s", failed.Stderr)
		}
		t.Fatal(err)
	}
	fields := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if len(fields) != 5*len(want) {
		t.Errorf("%d files, %d written", len(fields)/5, len(want))
	}
	for f := range slices.Chunk(fields, 5) {
		d := want[path.Join("/", f[0])]
		got, expected := strings.Join(f[1:4], " "), fmt.Sprintf("%o %d %d", d.Mode&0o7777, d.UID, d.Links)
		if got != expected || d.Mode&erofs.TypeMask != erofs.Folder && f[4] != fmt.Sprint(len(d.Content)) {
			t.Errorf("%q: %q, not %q", f[0], got, expected)
		}
	}
}

// The same tree is the same file, whatever the order in which maps are walked.
func TestSameTreeSameFile(t *testing.T) {
	t.Parallel()
	var images [2][]byte
	for i := range images {
		name := write(t, func(w *erofs.Writer) *erofs.Node { return sample(t, w) })
		images[i], _ = os.ReadFile(name)
	}
	if len(images[0]) == 0 || !bytes.Equal(images[0], images[1]) {
		t.Error("two images of one tree differ")
	}
}

// What a later layer replaced takes no room.
func TestUnusedBytesAreHoles(t *testing.T) {
	t.Parallel()
	name := write(t, func(w *erofs.Writer) *erofs.Node {
		root := erofs.NewFolder(0o755)
		noise := make([]byte, 8<<20)
		_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
		file(t, w, string(noise))
		root.Entries["kept"] = file(t, w, "kept")
		file(t, w, string(noise))
		return root
	})
	var s unix.Stat_t
	if err := unix.Stat(name, &s); err != nil {
		t.Fatal(err)
	}
	if s.Blocks*512 > 1<<20 {
		t.Skipf("%d bytes are kept: this file system has no holes", s.Blocks*512)
	}
	if got := asGVisor(t, name)["/kept"].Content; got != "kept" {
		t.Errorf("%q", got)
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	twice := erofs.NewFolder(0o755)
	for name, root := range map[string]*erofs.Node{
		"no folder":    link("x"),
		"a device":     {Mode: erofs.Folder, Entries: map[string]*erofs.Node{"d": {Mode: unix.S_IFBLK}}},
		"no name":      {Mode: erofs.Folder, Entries: map[string]*erofs.Node{"": link("x")}},
		"the parent":   {Mode: erofs.Folder, Entries: map[string]*erofs.Node{"..": link("x")}},
		"a long name":  {Mode: erofs.Folder, Entries: map[string]*erofs.Node{strings.Repeat("n", 256): link("x")}},
		"no target":    {Mode: erofs.Folder, Entries: map[string]*erofs.Node{"l": link("")}},
		"a far target": {Mode: erofs.Folder, Entries: map[string]*erofs.Node{"l": link(strings.Repeat("t", 4096))}},
		"a loop":       {Mode: erofs.Folder, Entries: map[string]*erofs.Node{"a": twice, "b": twice}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := os.Create(filepath.Join(t.TempDir(), "image"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := erofs.NewWriter(f).Finish(root); err == nil {
				t.Error("it was written")
			}
		})
	}
}

func TestAppendWantsAllBytes(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := erofs.NewWriter(f)
	if _, err := w.Append(strings.NewReader("abc"), 4); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	d, err := w.Reserve(2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Into(d).Write([]byte("abc")); err == nil {
		t.Error("a file may not grow into its neighbour")
	}
}

// Any tree comes back as it was.
func TestAnyTree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		name := rapid.StringMatching(`[ -\.0-~]{1,30}`).Filter(func(s string) bool { return s != "." && s != ".." })
		var want map[string]described
		image := write(t, func(w *erofs.Writer) *erofs.Node {
			root := erofs.NewFolder(0o755)
			folders, files := []*erofs.Node{root}, []*erofs.Node{}
			for range rapid.IntRange(0, 60).Draw(r, "entries") {
				in := rapid.SampledFrom(folders).Draw(r, "in")
				n := link("somewhere")
				switch kind := rapid.IntRange(0, 3).Draw(r, "kind"); {
				case kind == 0:
					n = erofs.NewFolder(uint16(rapid.IntRange(0, 0o1777).Draw(r, "mode")))
					folders = append(folders, n)
				case kind == 1:
					n = file(t, w, strings.Repeat("c", rapid.IntRange(0, 9000).Draw(r, "size")))
					files = append(files, n)
				case kind == 2 && len(files) > 0:
					n = rapid.SampledFrom(files).Draw(r, "hard")
				}
				at := name.Draw(r, "name")
				if old := in.Entries[at]; old != nil && old.IsFolder() {
					continue
				}
				in.Entries[at] = n
			}
			want = describe(t, w, root)
			return root
		})
		if diff := cmp.Diff(want, asGVisor(t, image)); diff != "" {
			r.Error(diff)
		}
	})
}
