package evidence

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
)

// The bounds of a diff.
const (
	maxDiffFile  = 1 << 20 // a larger file is only named
	maxDiffBytes = 4 << 20 // of the whole diff
)

// emptyBlob is git's name of an empty file.
const emptyBlob = "e69de29"

// differ gathers the changes of a workspace as a unified diff: before holds the
// text of each file that was put into it, the walk tells how it was left. The
// diff is deterministic, and git apply and patch -p1 take it. What cannot be
// shown as lines (binary files, large files, links) is named at its top, where
// both let it pass. It is empty when nothing changed. Removals go first, so
// that a file can make room for a folder, or a folder for a file.
type differ struct {
	before  map[string]string
	kept    map[string]bool // of before: there as a file
	named   bytes.Buffer    // what is only named
	changed bytes.Buffer    // additions and modifications
	cut     int             // files left out over the bound
}

func (d *differ) after(n node, content io.Reader) error {
	switch n.kind {
	case folder:
	case link:
		d.name("Symbolic link", n.path, " -> "+quoteName("", n.target))
	case file:
		return d.file(n, content)
	}
	return nil
}

func (d *differ) file(n node, content io.Reader) error {
	old, had := d.before[n.path]
	if had {
		d.kept[n.path] = true
	}
	if n.size > maxDiffFile || len(old) > maxDiffFile {
		if !had || int64(len(old)) != n.size || !sameAs(content, old) {
			d.name("Large file", n.path, " differs")
		}
		return nil
	}
	if d.changed.Len() > maxDiffBytes {
		d.cut++
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(content, maxDiffFile))
	if err != nil {
		return fmt.Errorf("read %s: %w", printable(n.path), err)
	}
	now := string(data)
	same := had && now == old
	switch {
	case same && n.mode == 0o644:
	case !same && (isBinary(now) || isBinary(old)):
		d.name("Binary file", n.path, " differs")
	default:
		d.section(n, had, old, now)
	}
	return nil
}

func sameAs(r io.Reader, text string) bool {
	want := strings.NewReader(text)
	a, b := make([]byte, 32<<10), make([]byte, 32<<10)
	for {
		n, err := io.ReadFull(r, a)
		m, _ := io.ReadFull(want, b)
		if !bytes.Equal(a[:n], b[:m]) {
			return false
		}
		if err != nil {
			return err == io.EOF || err == io.ErrUnexpectedEOF //nolint:errorlint // ReadFull returns them bare
		}
	}
}

// isBinary has the rule of the tools that read the diff.
func isBinary(text string) bool { return strings.IndexByte(text, 0) >= 0 }

// name adds a line about something that is not shown. Its first words are none
// that patch or git take for the beginning of a change.
func (d *differ) name(what, path, then string) {
	if d.named.Len() > maxDiffBytes/4 {
		d.cut++
		return
	}
	fmt.Fprintf(&d.named, "%s %s%s\n", what, quoteName("", path), then)
}

func (d *differ) section(n node, had bool, old, now string) {
	var out bytes.Buffer
	a, b := quoteName("a/", n.path), quoteName("b/", n.path)
	fmt.Fprintf(&out, "diff --git %s %s\n", a, b)
	switch {
	case !had:
		fmt.Fprintf(&out, "new file mode 100%o\n", n.mode)
		if now == "" {
			fmt.Fprintf(&out, "index 0000000..%s\n", emptyBlob)
		}
		a = "/dev/null"
	case n.mode != 0o644:
		fmt.Fprintf(&out, "old mode 100644\nnew mode 100%o\n", n.mode)
	}
	hunks(&out, a, b, old, now)
	if d.changed.Len()+out.Len() > maxDiffBytes {
		d.cut++
		return
	}
	d.changed.Write(out.Bytes())
}

// finish adds the removals and joins the parts.
func (d *differ) finish() []byte {
	var gone []string
	for path := range d.before {
		if !d.kept[path] {
			gone = append(gone, path)
		}
	}
	slices.Sort(gone)
	var removed bytes.Buffer
	for _, path := range gone {
		old := d.before[path]
		switch {
		case isBinary(old):
			d.name("Binary file", path, " was removed")
		case len(old) > maxDiffFile:
			d.name("Large file", path, " was removed")
		case removed.Len()+len(old) > maxDiffBytes:
			d.cut++
		default:
			a := quoteName("a/", path)
			fmt.Fprintf(&removed, "diff --git %s %s\ndeleted file mode 100644\n", a, quoteName("b/", path))
			if old == "" {
				// Without it patch takes the removal for one that was done before.
				fmt.Fprintf(&removed, "index %s..0000000\n", emptyBlob)
			}
			hunks(&removed, a, "/dev/null", old, "")
		}
	}
	if d.cut > 0 {
		fmt.Fprintf(&d.named, "Left out: %d more files, over the bound of a diff\n", d.cut)
	}
	return slices.Concat(d.named.Bytes(), removed.Bytes(), d.changed.Bytes())
}

// hunks writes the changes of one file, with three lines around each.
func hunks(out *bytes.Buffer, a, b, old, now string) {
	const around = 3
	x, y := splitLines(old), splitLines(now)
	edits := compare(x, y)
	if len(edits) == 0 {
		return
	}
	fmt.Fprintf(out, "--- %s\n+++ %s\n", a, b)
	for len(edits) > 0 {
		n := 1
		for n < len(edits) && edits[n].a0-edits[n-1].a1 <= 2*around {
			n++
		}
		hunk(out, x, y, edits[:n], around)
		edits = edits[n:]
	}
}

func hunk(out *bytes.Buffer, x, y []string, edits []edit, around int) {
	first, last := edits[0], edits[len(edits)-1]
	lead := min(around, first.a0)
	trail := min(around, len(x)-last.a1)
	a0, a1, b0, b1 := first.a0-lead, last.a1+trail, first.b0-lead, last.b1+trail
	fmt.Fprintf(out, "@@ -%s +%s @@\n", span(a0, a1), span(b0, b1))
	at := a0
	for _, e := range edits {
		writeLines(out, ' ', x[at:e.a0])
		writeLines(out, '-', x[e.a0:e.a1])
		writeLines(out, '+', y[e.b0:e.b1])
		at = e.a1
	}
	writeLines(out, ' ', x[at:a1])
}

// span is a range as unified diffs have it: an empty one names the line before.
func span(from, to int) string {
	switch to - from {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return fmt.Sprint(from + 1)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}

func writeLines(out *bytes.Buffer, mark byte, lines []string) {
	for _, line := range lines {
		out.WriteByte(mark)
		out.WriteString(line)
		if !strings.HasSuffix(line, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

// quoteName writes a path as git does: as it is where that is safe, else in
// quotes with C escapes. A path is hostile and may hold line feeds; patch is
// lost without quotes at a space.
func quoteName(prefix, path string) string {
	plain := true
	for i := range len(path) {
		if c := path[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			plain = false
			break
		}
	}
	if plain {
		return prefix + path
	}
	var b strings.Builder
	b.WriteString(`"` + prefix)
	for i := range len(path) {
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
