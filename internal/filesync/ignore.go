package filesync

import (
	"strings"
)

// IgnoreFile names the file at the root of a tree that says what is not synced,
// as a .gitignore does.
const IgnoreFile = ".aureaignore"

// The bounds of an ignore file; what is beyond them has no effect.
const (
	maxIgnoreBytes = 64 << 10
	maxPatterns    = 1000
	maxPattern     = 512
)

// alwaysFirst is what is ignored unless the ignore file takes it back: what is
// large, made again by a tool, and of no use half synced.
const alwaysFirst = ".git/\nnode_modules/\n"

// ignore is a list of patterns, of which the last that matches decides.
type ignore []pattern

type pattern struct {
	parts   []string // ** stands for any number of folders
	negated bool
	folder  bool // matches folders only
}

// parseIgnore reads an ignore file in the syntax of gitignore.
func parseIgnore(text string) ignore {
	if len(text) > maxIgnoreBytes {
		text = text[:maxIgnoreBytes]
	}
	var list ignore
	for line := range strings.Lines(alwaysFirst + text) {
		if len(list) == maxPatterns {
			break
		}
		if p, ok := parsePattern(strings.TrimRight(line, "\r\n")); ok {
			list = append(list, p)
		}
	}
	return list
}

func parsePattern(line string) (p pattern, ok bool) {
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = strings.TrimSuffix(line, " ")
	}
	if line == "" || line[0] == '#' || len(line) > maxPattern {
		return p, false
	}
	if line[0] == '!' {
		p.negated, line = true, line[1:]
	}
	line, p.folder = strings.CutSuffix(line, "/")
	if line == "" {
		return p, false
	}
	p.parts = strings.Split(strings.TrimPrefix(line, "/"), "/")
	if !strings.Contains(line, "/") { // anywhere
		p.parts = append([]string{"**"}, p.parts...)
	}
	return p, true
}

// match reports whether a path is ignored. The caller looks at folders before
// what is in them, and not into those that are ignored.
func (ig ignore) match(name string, isDir bool) bool {
	parts := strings.Split(name, "/")
	for i := len(ig) - 1; i >= 0; i-- {
		if p := ig[i]; (isDir || !p.folder) && matchParts(p.parts, parts) {
			return !p.negated
		}
	}
	return false
}

// matchPath is match for a path whose folders were not looked at.
func (ig ignore) matchPath(name string) bool {
	for i := range len(name) {
		if name[i] == '/' && ig.match(name[:i], true) {
			return true
		}
	}
	return ig.match(name, false)
}

// matchParts matches folder by folder. It goes back to the last ** only, so the
// time is bounded by the product of the lengths.
func matchParts(pattern, parts []string) bool {
	p, n, star, mark := 0, 0, -1, 0
	for n < len(parts) {
		switch {
		case p < len(pattern) && pattern[p] == "**":
			if p == len(pattern)-1 && p > 0 {
				return true // a/** is all in a
			}
			star, mark = p, n
			p++
		case p < len(pattern) && glob(pattern[p], parts[n]):
			p++
			n++
		case star >= 0:
			mark++
			p, n = star+1, mark
		default:
			return false
		}
	}
	return p == len(pattern)
}

// glob matches one name: * any text, ? any character, [a-z] and [!a-z] one of
// them, \ takes what follows as it is. It goes back to the last * only.
func glob(pattern, name string) bool {
	p, n, star, mark := 0, 0, -1, 0
	for n < len(name) {
		if p < len(pattern) && pattern[p] == '*' {
			star, mark = p, n
			p++
			continue
		}
		if width, step := globOne(pattern[p:], name[n:]); width > 0 {
			p += width
			n += step
			continue
		}
		if star < 0 {
			return false
		}
		mark++
		p, n = star+1, mark
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// globOne matches what stands first in a pattern with the first character of a
// name, and returns how much of each that took; 0 is no match.
func globOne(pattern, name string) (width, step int) {
	if pattern == "" {
		return 0, 0
	}
	char := []rune(name[:min(len(name), 4)])[0]
	step = max(1, len(string(char)))
	if char == '\uFFFD' {
		step = 1
	}
	switch pattern[0] {
	case '?':
		return 1, step
	case '[':
		if width, in := class(pattern, char); width > 0 {
			if in {
				return width, step
			}
			return 0, 0
		}
	case '\\':
		if len(pattern) > 1 && pattern[1] == name[0] {
			return 2, 1
		}
		return 0, 0
	}
	if pattern[0] == name[0] {
		return 1, 1
	}
	return 0, 0
}

// class reads [a-z]; width 0 is that it has no end, and stands for itself.
func class(pattern string, char rune) (width int, in bool) {
	end := strings.IndexByte(pattern[1:], ']')
	if end == 0 || end == 1 && (pattern[1] == '!' || pattern[1] == '^') { // a ] that comes first is one of them
		if more := strings.IndexByte(pattern[end+2:], ']'); more >= 0 {
			end += more + 1
		} else {
			end = -1
		}
	}
	if end < 0 {
		return 0, false
	}
	set := []rune(pattern[1 : end+1])
	negated := len(set) > 0 && (set[0] == '!' || set[0] == '^')
	if negated {
		set = set[1:]
	}
	for i := 0; i < len(set); i++ {
		low, high := set[i], set[i]
		if i+2 < len(set) && set[i+1] == '-' {
			high = set[i+2]
			i += 2
		}
		if low <= char && char <= high {
			in = true
		}
	}
	return end + 2, in != negated
}
