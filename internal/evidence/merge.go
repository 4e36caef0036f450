package evidence

import (
	"bytes"
	"strings"
)

// Unified writes how the lines of one text became those of another, as diff -u
// does; "" is that nothing changed.
func Unified(path, old, now string) string {
	var out bytes.Buffer
	hunks(&out, quoteName("a/", path), quoteName("b/", path), old, now)
	return out.String()
}

// Merge puts together what two have made of one text. It fails where both
// changed the same lines, or lines that touch, in different ways.
func Merge(base, one, other string) (merged string, ok bool) {
	lines, x, y := splitLines(base), splitLines(one), splitLines(other)
	a, b := compare(lines, x), compare(lines, y)
	var out strings.Builder
	at := 0
	take := func(e edit, from []string) {
		for _, line := range lines[at:e.a0] {
			out.WriteString(line)
		}
		for _, line := range from[e.b0:e.b1] {
			out.WriteString(line)
		}
		at = e.a1
	}
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].a1 < b[0].a0:
			take(a[0], x)
			a = a[1:]
		case len(a) == 0 || b[0].a1 < a[0].a0:
			take(b[0], y)
			b = b[1:]
		case same(a[0], b[0], x, y):
			take(a[0], x)
			a, b = a[1:], b[1:]
		default:
			return "", false
		}
	}
	take(edit{len(lines), len(lines), 0, 0}, nil)
	return out.String(), true
}

// same reports whether both replaced the same lines by the same.
func same(a, b edit, x, y []string) bool {
	if a.a0 != b.a0 || a.a1 != b.a1 || a.b1-a.b0 != b.b1-b.b0 {
		return false
	}
	for i := range a.b1 - a.b0 {
		if x[a.b0+i] != y[b.b0+i] {
			return false
		}
	}
	return true
}
