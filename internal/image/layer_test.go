package image

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/image/erofs"
)

// memory keeps the bytes of files where a test can read them.
type memory struct{ files []string }

func (m *memory) Append(r io.Reader, size int64) (erofs.Data, error) {
	b, err := io.ReadAll(io.LimitReader(r, size))
	if err != nil {
		return erofs.Data{}, err
	}
	if int64(len(b)) < size {
		return erofs.Data{}, io.ErrUnexpectedEOF
	}
	m.files = append(m.files, string(b))
	return erofs.Data{Block: uint32(len(m.files) - 1), Size: size}, nil
}

func (m *memory) From(d erofs.Data) io.Reader {
	if int(d.Block) >= len(m.files) {
		return strings.NewReader("")
	}
	return strings.NewReader(m.files[d.Block][:d.Size])
}

// show lists a tree: "a/ b=content c->target".
func show(t *tree, m *memory) []string {
	list := []string{}
	var walk func(at string, n *erofs.Node)
	walk = func(at string, n *erofs.Node) {
		for _, name := range slices.Sorted(maps.Keys(n.Entries)) {
			child, full := n.Entries[name], path.Join(at, name)
			switch {
			case child.IsFolder():
				list = append(list, full+"/")
				walk(full, child)
			case child.IsLink():
				list = append(list, full+"->"+child.Target)
			default:
				list = append(list, full+"="+m.files[child.Data.Block])
			}
		}
	}
	walk("", t.root)
	return list
}

func smallBounds() Bounds {
	b := DefaultBounds()
	b.Entries, b.Bytes, b.Names, b.Depth, b.Slack, b.Steps = 100, 1000, 5000, 10, 2000, 2000
	return b
}

func applyAll(t testing.TB, b Bounds, layers ...[]byte) (*tree, *memory, error) {
	t.Helper()
	made, kept := newTree(b), &memory{}
	for _, l := range layers {
		if err := made.apply(context.Background(), bytes.NewReader(l), kept); err != nil {
			return made, kept, err
		}
	}
	return made, kept, nil
}

func TestLayers(t *testing.T) {
	t.Parallel()
	wh := func(name string) entry { return file(name, "") }
	for name, test := range map[string]struct {
		layers [][]entry
		want   []string
	}{
		"absolute names are below the root": {[][]entry{{file("/etc/x", "1"), file("./y", "2"), file("//z", "3")}}, []string{"etc/", "etc/x=1", "y=2", "z=3"}},
		"the last of duplicates counts":     {[][]entry{{file("a", "1"), file("a", "2")}}, []string{"a=2"}},
		"a file over a folder":              {[][]entry{{dir("a"), file("a/b", "1")}, {file("a", "2")}}, []string{"a=2"}},
		"a folder over a file":              {[][]entry{{file("a", "1")}, {dir("a"), file("a/b", "2")}}, []string{"a/", "a/b=2"}},
		"a folder keeps what it holds":      {[][]entry{{dir("a"), file("a/b", "1")}, {dir("a")}}, []string{"a/", "a/b=1"}},
		"a folder over a link":              {[][]entry{{dir("b"), link("a", "b")}, {dir("a"), file("a/c", "1")}}, []string{"a/", "a/c=1", "b/"}},
		"through a link":                    {[][]entry{{dir("usr/lib"), link("lib", "usr/lib")}, {file("lib/x", "1")}}, []string{"lib->usr/lib", "usr/", "usr/lib/", "usr/lib/x=1"}},
		"through an absolute link":          {[][]entry{{dir("r"), link("l", "/r")}, {file("l/x", "1")}}, []string{"l->/r", "r/", "r/x=1"}},
		"a link cannot climb out":           {[][]entry{{dir("d"), link("d/up", "../../../..")}, {file("d/up/x", "1")}}, []string{"d/", "d/up->../../../..", "x=1"}},
		"a link to nowhere is made":         {[][]entry{{link("l", "/not/yet")}, {file("l/x", "1")}}, []string{"l->/not/yet", "not/", "not/yet/", "not/yet/x=1"}},
		"a link at the end is replaced":     {[][]entry{{file("t", "1"), link("l", "t")}, {file("l", "2")}}, []string{"l=2", "t=1"}},
		"hard links":                        {[][]entry{{file("a", "1"), hard("b", "a"), hard("c", "/b")}}, []string{"a=1", "b=1", "c=1"}},
		"a hard link to a link":             {[][]entry{{link("l", "x"), hard("m", "l")}}, []string{"l->x", "m->x"}},
		"a hard link to a lower layer":      {[][]entry{{file("a", "1")}, {hard("b", "a")}}, []string{"a=1", "b=1"}},
		"a hard link outlives its name":     {[][]entry{{file("a", "1"), hard("b", "a")}, {wh(".wh.a")}}, []string{"b=1"}},
		"a hard link to itself":             {[][]entry{{file("a", "1"), hard("a", "a")}}, []string{"a=1"}},
		"whiteout":                          {[][]entry{{file("a", "1"), file("d/b", "2")}, {wh(".wh.a"), wh("d/.wh.b")}}, []string{"d/"}},
		"whiteout of a folder":              {[][]entry{{file("d/e/f", "1")}, {wh(".wh.d")}}, []string{}},
		"whiteout of nothing":               {[][]entry{{wh(".wh.a"), wh("no/.wh.b")}}, []string{}},
		"a whiteout spares its own layer":   {[][]entry{{file("a", "1")}, {file("a", "2"), wh(".wh.a")}}, []string{"a=2"}},
		"a whiteout before its own layer":   {[][]entry{{file("d/a", "1")}, {wh(".wh.d"), file("d/b", "2")}}, []string{"d/", "d/b=2"}},
		"opaque":                            {[][]entry{{file("d/a", "1"), file("d/e/b", "2")}, {dir("d"), wh("d/.wh..wh..opq"), file("d/c", "3")}}, []string{"d/", "d/c=3"}},
		"opaque after its own layer":        {[][]entry{{file("d/e/a", "1")}, {file("d/e/b", "2"), wh("d/.wh..wh..opq")}}, []string{"d/", "d/e/", "d/e/b=2"}},
		"opaque root":                       {[][]entry{{file("a", "1")}, {wh(".wh..wh..opq"), file("b", "2")}}, []string{"b=2"}},
		"whiteouts through links":           {[][]entry{{file("r/x", "1"), link("l", "r")}, {wh("l/.wh.x")}}, []string{"l->r", "r/"}},
		"what one tool means is ignored":    {[][]entry{{file("a", "1"), wh(".wh..wh.plnk")}}, []string{"a=1"}},
		"a whiteout that is a folder":       {[][]entry{{file("a/b", "1")}, {dir(".wh.a")}}, []string{}},
		"the root itself":                   {[][]entry{{dir("./"), file("", "x"), link(".", "/etc"), file("a", "1")}}, []string{"a=1"}},
		"devices are left out": {[][]entry{{file("n", "1")}, {
			{name: "n", kind: tar.TypeChar}, {name: "b", kind: tar.TypeBlock}, {name: "p", kind: tar.TypeFifo}, file("a", "1"),
		}}, []string{"a=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var layers [][]byte
			for _, l := range test.layers {
				layers = append(layers, layerOf(t, l...))
			}
			got, kept, err := applyAll(t, smallBounds(), layers...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, show(got, kept)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHostileLayers(t *testing.T) {
	t.Parallel()
	many := func(n int, make func(i int) entry) []entry {
		var list []entry
		for i := range n {
			list = append(list, make(i))
		}
		return list
	}
	long := strings.Repeat("n", 300)
	for name, test := range map[string]struct {
		layer []entry
		kind  fault.Kind
	}{
		"a name that climbs":              {[]entry{file("../x", "1")}, fault.Invalid},
		"a name that climbs in the midst": {[]entry{file("a/../../x", "1")}, fault.Invalid},
		"an absolute name that climbs":    {[]entry{file("/../x", "1")}, fault.Invalid},
		"a hard link that climbs":         {[]entry{hard("x", "../../etc/shadow")}, fault.Invalid},
		"a hard link to nothing":          {[]entry{hard("x", "/etc/shadow")}, fault.Invalid},
		"a hard link to a folder":         {[]entry{dir("d"), hard("d/d", "d")}, fault.Invalid},
		"a hard link to the root":         {[]entry{hard("x", "/")}, fault.Invalid},
		"a name that is too long":         {[]entry{file(long, "1")}, fault.Invalid},
		"a link that is too long":         {[]entry{link("l", strings.Repeat("x/", 2050))}, fault.Invalid},
		"a link into a long name":         {[]entry{link("l", long), file("l/x", "1")}, fault.Invalid},
		"a link to nothing":               {[]entry{link("l", "")}, fault.Invalid},
		"links in a circle":               {[]entry{link("a", "b"), link("b", "a"), file("a/x", "1")}, fault.Invalid},
		"a link to itself":                {[]entry{link("a", "a"), file("a/x", "1")}, fault.Invalid},
		"through a file":                  {[]entry{file("f", "1"), file("f/x", "1")}, fault.Invalid},
		"a whiteout of the parent":        {[]entry{dir("d"), file("d/.wh...", "")}, fault.Invalid},
		"a whiteout of nothing":           {[]entry{dir("d"), file("d/.wh.", "")}, fault.Invalid},
		"an owner below zero":             {[]entry{{name: "x", uid: -1}}, fault.Invalid},
		"an owner that is too large":      {[]entry{{name: "x", uid: 1 << 33}}, fault.Invalid},
		"too many entries":                {many(101, func(i int) entry { return file(fmt.Sprint(i), "") }), fault.TooLarge},
		"too many bytes":                  {many(11, func(i int) entry { return file(fmt.Sprint(i), strings.Repeat("x", 99)) }), fault.TooLarge},
		"too many bytes in one place":     {many(11, func(int) entry { return file("a", strings.Repeat("x", 99)) }), fault.TooLarge},
		"too long names":                  {many(60, func(i int) entry { return dir(fmt.Sprint(strings.Repeat("n", 90), i)) }), fault.TooLarge},
		"too deep":                        {[]entry{file("a/b/c/d/e/f/g/h/i/j/k/l", "1")}, fault.TooLarge},
		"too deep through links": {append(many(9, func(i int) entry {
			return dir(strings.TrimSuffix(strings.Repeat("d/", i+1), "/"))
		}), link("l", "d/d/d/d/d/d/d/d/d"), dir("l/e"), link("m", "l/e"), dir("m/f"), file("m/f/g/h", "1")), fault.TooLarge},
		"whiteouts without end": {append(many(40, func(i int) entry { return file(fmt.Sprint("d/", i), "") }),
			many(59, func(int) entry { return file("d/.wh..wh..opq", "") })...), fault.TooLarge},
		"links without end": {append(many(30, func(i int) entry { return link(fmt.Sprint(i), fmt.Sprint("./././", i+1)) }),
			many(60, func(i int) entry { return dir("0/x") })...), fault.TooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := smallBounds()
			if _, kept, err := applyAll(t, b, layerOf(t, test.layer...)); !fault.Is(err, test.kind) {
				t.Errorf("%v; %q", err, kept.files)
			}
		})
	}
}

func TestBrokenLayers(t *testing.T) {
	t.Parallel()
	whole := layerOf(t, file("a", strings.Repeat("x", 600)), file("b", "2"))
	for _, n := range []int{100, 512, 700, 1100, 1700} {
		_, _, err := applyAll(t, smallBounds(), whole[:n])
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	if _, _, err := applyAll(t, smallBounds(), bytes.Repeat([]byte("not a tar "), 200)); !fault.Is(err, fault.Invalid) {
		t.Errorf("no tar: %v", err)
	}
}

// A sparse file describes in a few bytes more than any disk has.
func TestSparseBomb(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	// By hand, in the old GNU form: 512 bytes of header, one empty region at the
	// very end, and a true size of 100 GiB.
	block := make([]byte, 512)
	copy(block, "bomb")
	copy(block[100:], "0000644\x00")
	copy(block[108:], "0000000\x00")
	copy(block[116:], "0000000\x00")
	copy(block[124:], "00000000000\x00")
	copy(block[136:], "00000000000\x00")
	block[156] = tar.TypeGNUSparse
	copy(block[257:], "ustar  \x00")
	base256 := func(at []byte, v uint64) {
		at[0] = 0x80
		for i := 11; i > 3; i-- {
			at[i] = byte(v)
			v >>= 8
		}
	}
	const size = 100 << 30
	base256(block[386:], size)
	base256(block[398:], 0)
	base256(block[483:], size)
	copy(block[148:], "        ")
	sum := 0
	for _, c := range block {
		sum += int(c)
	}
	copy(block[148:], fmt.Sprintf("%06o\x00 ", sum))
	b.Write(block)
	b.Write(make([]byte, 1024))
	bounds := DefaultBounds()
	bounds.Bytes, bounds.Slack = 1<<40, 1<<20
	made := newTree(bounds)
	err := made.apply(t.Context(), &b, discard{})
	if !fault.Is(err, fault.TooLarge) {
		t.Error(err)
	}
}

// discard counts bytes as a root would, and keeps none.
type discard struct{}

func (discard) Append(r io.Reader, size int64) (erofs.Data, error) {
	n, err := io.Copy(io.Discard, io.LimitReader(r, size))
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	return erofs.Data{Block: 1, Size: size}, err
}

func TestRights(t *testing.T) {
	t.Parallel()
	got, _, err := applyAll(t, smallBounds(), layerOf(t,
		entry{name: "su", mode: 0o6755, content: "1", uid: 0}, entry{name: "d", kind: tar.TypeDir, mode: 0o3777, uid: 70000}))
	if err != nil {
		t.Fatal(err)
	}
	if su := got.root.Entries["su"]; su.Mode != erofs.Regular|0o755 {
		t.Errorf("%o", su.Mode)
	}
	if d := got.root.Entries["d"]; d.Mode != erofs.Folder|0o1777 || d.UID != 70000 {
		t.Errorf("%o %d", d.Mode, d.UID)
	}
}

func TestFurnish(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		layer  []entry
		passwd string
	}{
		"an empty image": {nil, "sandbox:x:1000:1000:sandbox:/workspace:/bin/sh\naurea:x:65533:65533:guest:/:/bin/false\n"},
		"its users stay": {
			[]entry{file("etc/passwd", "root:x:0:0:::\nnode:x:1000:1000:::")},
			"root:x:0:0:::\nnode:x:1000:1000:::\nsandbox:x:1000:1000:sandbox:/workspace:/bin/sh\naurea:x:65533:65533:guest:/:/bin/false\n",
		},
		"one who would be root": {
			[]entry{file("etc/passwd", " sandbox:x:0:0:::\n")},
			"sandbox:x:1000:1000:sandbox:/workspace:/bin/sh\n sandbox:x:0:0:::\naurea:x:65533:65533:guest:/:/bin/false\n",
		},
		"one in the group of root": {
			[]entry{file("etc/passwd", "sandbox:x:1000:0:::\n")},
			"sandbox:x:1000:1000:sandbox:/workspace:/bin/sh\nsandbox:x:1000:0:::\naurea:x:65533:65533:guest:/:/bin/false\n",
		},
		"one who is right": {
			[]entry{file("etc/passwd", "sandbox:x:1000:1000:me:/:/bin/zsh\n")},
			"sandbox:x:1000:1000:me:/:/bin/zsh\naurea:x:65533:65533:guest:/:/bin/false\n",
		},
		"a list behind links": {
			[]entry{file("real/list", "x:x:1:1:::\n"), link("etc", "real/"), link("real/passwd", "../real/list")},
			"x:x:1:1:::\nsandbox:x:1000:1000:sandbox:/workspace:/bin/sh\naurea:x:65533:65533:guest:/:/bin/false\n",
		},
		"a list that is a folder":      {[]entry{dir("etc/passwd/x")}, "sandbox:x:1000:1000:sandbox:/workspace:/bin/sh\naurea:x:65533:65533:guest:/:/bin/false\n"},
		"a list that leads in circles": {[]entry{link("etc/passwd", "passwd")}, "sandbox:x:1000:1000:sandbox:/workspace:/bin/sh\naurea:x:65533:65533:guest:/:/bin/false\n"},
		"an etc that is a file":        {[]entry{file("etc", "x")}, "sandbox:x:1000:1000:sandbox:/workspace:/bin/sh\naurea:x:65533:65533:guest:/:/bin/false\n"},
		"an etc that leads nowhere":    {[]entry{link("etc", "/etc")}, "sandbox:x:1000:1000:sandbox:/workspace:/bin/sh\naurea:x:65533:65533:guest:/:/bin/false\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made, kept, err := applyAll(t, smallBounds(), layerOf(t, append(test.layer,
				link(".aurea", "/etc"), link("workspace", "/"), link("tmp", "/etc"), file("dev/null", "x"), link("proc", "/"))...))
			if err != nil {
				t.Fatal(err)
			}
			if err := made.furnish(kept); err != nil {
				t.Fatal(err)
			}
			_, _, n, err := made.find([]string{"etc", "passwd"})
			if err != nil || n == nil {
				t.Fatal(n, err)
			}
			if got := kept.files[n.Data.Block]; got != test.passwd || n.Mode&0o444 != 0o444 {
				t.Errorf("%o %q", n.Mode, got)
			}
			r := made.root.Entries
			if r["workspace"].UID != 1000 || r["workspace"].Mode != erofs.Folder|0o755 || r["tmp"].Mode != erofs.Folder|0o1777 {
				t.Errorf("%+v %+v", r["workspace"], r["tmp"])
			}
			for _, name := range []string{".aurea", "dev", "proc", "sys"} {
				if !r[name].IsFolder() || len(r[name].Entries) != 0 {
					t.Errorf("/%s is %+v", name, r[name])
				}
			}
		})
	}
}

// Whatever a layer holds, the tree stays a tree that can be written and is
// within its bounds.
func FuzzLayer(f *testing.F) {
	f.Add(layerOf(f, file("a/b", "1"), link("l", "../.."), hard("h", "a/b"), file("l/x", "2"), file("a/.wh.b", "")), layerOf(f, file(".wh..wh..opq", ""), dir("a")))
	f.Add(layerOf(f, link("a", "b"), link("b", "a")), layerOf(f, file("a/x", "")))
	f.Add(layerOf(f, dir("etc"), file("etc/passwd", "root:x:0:0")), []byte{})
	f.Add([]byte("junk"), layerOf(f, entry{name: "d", kind: tar.TypeChar}))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		b := smallBounds()
		made, kept, err := applyAll(t, b, one, two)
		if err != nil {
			return
		}
		if made.bytes > b.Bytes || made.entries > b.Entries || len(made.left) > maxLeft {
			t.Errorf("%d bytes, %d entries", made.bytes, made.entries)
		}
		if err := made.furnish(kept); err != nil {
			t.Fatal(err)
		}
		seen := map[*erofs.Node]bool{}
		var walk func(n *erofs.Node, depth int)
		walk = func(n *erofs.Node, depth int) {
			if n.IsFolder() && (seen[n] || depth > b.Depth+2) {
				t.Fatalf("a folder stands twice, or %d deep", depth)
			}
			if n.Mode&0o6000 != 0 {
				t.Fatalf("mode %o", n.Mode)
			}
			seen[n] = true
			for name, child := range n.Entries {
				if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || len(name) > erofs.MaxName {
					t.Fatalf("a name is %q", name)
				}
				walk(child, depth+1)
			}
		}
		walk(made.root, 0)
		if ours := made.root.Entries[".aurea"]; !ours.IsFolder() || len(ours.Entries) != 0 {
			t.Fatal("something stands where the guest is mounted")
		}
	})
}
