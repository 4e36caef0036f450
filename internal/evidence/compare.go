package evidence

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// The bounds of a comparison, beside those of the archives. Code in a sandbox
// has made both sides.
const (
	maxComparedText  = 256 << 10 // a larger file is only named
	maxComparedHeld  = 32 << 20  // of texts that wait for their other side
	maxComparedNames = 16 << 20  // of all paths of one side
	maxCompared      = 10_000    // differences that are listed
)

// ChangeKind is what became of an entry.
type ChangeKind string

// What can become of one.
const (
	Added    ChangeKind = "added"
	Modified ChangeKind = "modified"
	Deleted  ChangeKind = "deleted"
)

// Why a difference is only named.
const (
	BecauseBinary = "binary" // it is no text
	BecauseLarge  = "large"  // it is too large to be shown
	BecauseCut    = "cut"    // the differences before it took all the room
)

// Difference is an entry that is not the same in two archives.
type Difference struct {
	Path   string // relative
	Change ChangeKind
	Type   sandbox.FileType // as it is now, or was
	// Before and After are sizes; -1 is that there was or is nothing.
	Before, After int64
	// Diff is how its text changed, as git shows it: all of them one after the
	// other are a patch. Why says why there is none, where there could be.
	Diff string
	Why  string
}

// Comparison is how one archive became another.
type Comparison struct {
	Differences []Difference // in the order of their paths
	// Counts has all of them, Left says how many of them are not listed.
	Counts map[ChangeKind]int
	Left   int
}

// Compare reads two tar streams that came out of sandboxes, one after the
// other, and says how the first became the second. Owners and times do not
// count, of modes only whether a file can be executed. What is no file, folder
// or link is left out, as are names that lead out, and of two entries with one
// name the second.
func Compare(ctx context.Context, from, to io.Reader, b Bounds) (Comparison, error) {
	c := &comparer{before: map[string]*side{}, result: Comparison{Counts: map[ChangeKind]int{}}}
	if err := eachEntry(ctx, from, b, c.old); err != nil {
		return Comparison{}, err
	}
	if err := eachEntry(ctx, to, b, c.now); err != nil {
		return Comparison{}, err
	}
	if err := c.gone(ctx); err != nil {
		return Comparison{}, err
	}
	return c.finish(), nil
}

// eachEntry hands over what an archive holds, within bounds.
func eachEntry(ctx context.Context, r io.Reader, b Bounds, visit func(name string, h *tar.Header, content io.Reader) error) error {
	stream, m, seen, names := tar.NewReader(r), meter{bounds: b}, map[string]bool{".": true}, 0
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return broken(err)
		}
		name, why := cleanName(h.Name)
		if err := m.entry(strings.Count(name, "/")); err != nil {
			return err
		}
		if names += len(name); names > maxComparedNames {
			return fault.New(fault.TooLarge, "the names of the files have more than %d bytes together", maxComparedNames).WithCode("workspace_too_large")
		}
		if why != "" || seen[name] || h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir && h.Typeflag != tar.TypeSymlink {
			continue
		}
		seen[name] = true
		if h.Typeflag == tar.TypeReg {
			if err := m.file(h.Size); err != nil {
				return err
			}
		}
		if err := visit(name, h, &pausing{ctx, stream}); err != nil {
			return err
		}
	}
}

// side is an entry as it is in one archive.
type side struct {
	kind   kind
	mode   int64
	size   int64
	digest [sha256.Size]byte // of a file, or of where a link leads
	text   string
	why    string // there is no text
	met    bool   // the other archive has the name too
}

func (s *side) fileType() sandbox.FileType {
	switch s.kind {
	case folder:
		return sandbox.TypeDir
	case link:
		return sandbox.TypeLink
	case file:
	}
	return sandbox.TypeFile
}

// newSide reads one entry to its end.
func newSide(h *tar.Header, content io.Reader) (*side, error) {
	switch h.Typeflag {
	case tar.TypeDir:
		return &side{kind: folder}, nil
	case tar.TypeSymlink:
		return &side{kind: link, size: int64(len(h.Linkname)), digest: sha256.Sum256([]byte(h.Linkname))}, nil
	}
	s := &side{kind: file, mode: 0o644, size: h.Size}
	if h.Mode&0o100 != 0 {
		s.mode = 0o755
	}
	sum := sha256.New()
	var text bytes.Buffer
	into := io.Writer(sum)
	if h.Size <= maxComparedText {
		into = io.MultiWriter(sum, &text)
	}
	if _, err := io.Copy(into, content); err != nil {
		return nil, broken(err)
	}
	sum.Sum(s.digest[:0])
	s.text = text.String()
	switch {
	case h.Size > maxComparedText:
		s.why = BecauseLarge
	case isBinary(s.text) || !utf8.ValidString(s.text):
		s.text, s.why = "", BecauseBinary
	}
	return s, nil
}

type comparer struct {
	before map[string]*side
	held   int // bytes of texts in before
	shown  int // bytes of diffs in the result
	result Comparison
}

func (c *comparer) old(name string, h *tar.Header, content io.Reader) error {
	s, err := newSide(h, content)
	if err != nil {
		return err
	}
	if c.held += len(s.text); c.held > maxComparedHeld {
		c.held -= len(s.text)
		s.text, s.why = "", BecauseLarge
	}
	c.before[name] = s
	return nil
}

func (c *comparer) now(name string, h *tar.Header, content io.Reader) error {
	s, err := newSide(h, content)
	if err != nil {
		return err
	}
	was := c.before[name]
	if was == nil {
		c.add(name, Added, nil, s)
		return nil
	}
	was.met = true
	if was.kind != s.kind || was.mode != s.mode || was.digest != s.digest {
		c.add(name, Modified, was, s)
	}
	return nil
}

// gone adds what only the first archive has.
func (c *comparer) gone(ctx context.Context) error {
	var names []string
	for name, s := range c.before {
		if !s.met {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.add(name, Deleted, c.before[name], nil)
	}
	return nil
}

func (c *comparer) add(name string, change ChangeKind, was, is *side) {
	d := Difference{Path: name, Change: change, Before: -1, After: -1}
	for _, x := range []struct {
		s    *side
		size *int64
	}{{was, &d.Before}, {is, &d.After}} {
		if x.s != nil {
			*x.size, d.Type = x.s.size, x.s.fileType()
			if x.s.kind == file && d.Why == "" {
				d.Why = x.s.why
			}
		}
	}
	if d.Why == "" && (was == nil || was.kind == file) && (is == nil || is.kind == file) {
		d.Diff = section(name, was, is)
		if c.shown += len(d.Diff); c.shown > maxDiffBytes {
			c.shown -= len(d.Diff)
			d.Diff, d.Why = "", BecauseCut
		}
	}
	c.result.Counts[change]++
	c.result.Differences = append(c.result.Differences, d)
}

// section shows how one file changed, as git does.
func section(name string, was, is *side) string {
	var out bytes.Buffer
	a, b := quoteName("a/", name), quoteName("b/", name)
	fmt.Fprintf(&out, "diff --git %s %s\n", a, b)
	var old, now string
	switch {
	case was == nil:
		fmt.Fprintf(&out, "new file mode 100%o\n", is.mode)
		if is.text == "" {
			fmt.Fprintf(&out, "index 0000000..%s\n", emptyBlob)
		}
		a, now = "/dev/null", is.text
	case is == nil:
		fmt.Fprintf(&out, "deleted file mode 100%o\n", was.mode)
		if was.text == "" {
			fmt.Fprintf(&out, "index %s..0000000\n", emptyBlob)
		}
		b, old = "/dev/null", was.text
	default:
		if was.mode != is.mode {
			fmt.Fprintf(&out, "old mode 100%o\nnew mode 100%o\n", was.mode, is.mode)
		}
		old, now = was.text, is.text
	}
	hunks(&out, a, b, old, now)
	return out.String()
}

// finish puts the differences in order, and leaves out what is too much.
func (c *comparer) finish() Comparison {
	slices.SortFunc(c.result.Differences, func(a, b Difference) int { return cmp.Compare(a.Path, b.Path) })
	if n := len(c.result.Differences); n > maxCompared {
		c.result.Left = n - maxCompared
		c.result.Differences = slices.Clip(c.result.Differences[:maxCompared])
	}
	return c.result
}
