package filesync

import (
	"strings"
	"testing"
)

func TestIgnorePatterns(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pattern, path string
		want          bool
	}{
		{"*.o", "a.o", true},
		{"*.o", "d/a.o", true},
		{"*.o", "a.oo", false},
		{"/*.o", "d/a.o", false},
		{"/a", "a", true},
		{"/a", "d/a", false},
		{"d/a", "d/a", true},
		{"d/a", "x/d/a", false},
		{"d/", "d/a", true},
		{"d/", "d", false}, // a file
		{"d/", "x/d/a", true},
		{"**/a", "x/y/a", true},
		{"a/**", "a/b/c", true},
		{"a/**", "a", false},
		{"a/**/b", "a/b", true},
		{"a/**/b", "a/x/y/b", true},
		{"a/**/b", "a/x/y/c", false},
		{"a?c", "abc", true},
		{"a?c", "aäc", true},
		{"a?c", "ac", false},
		{"[a-c]x", "bx", true},
		{"[!a-c]x", "bx", false},
		{"[!a-c]x", "dx", true},
		{"[]]x", "]x", true},
		{"[x", "[x", true},
		{`\!x`, "!x", true},
		{`\#x`, "#x", true},
		{"# x", "# x", false},
		{"x ", "x", true},
		{"a*b*c", "aXbYc", true},
		{"a*b*c", "aXbY", false},
		{"x\n!x", "x", false},
		{"", ".git/config", true},
		{"!.git/", ".git/config", false},
		{"", "a/node_modules/b/c", true},
		{"", ".gitignore", false},
	} {
		if got := parseIgnore(tc.pattern).matchPath(tc.path); got != tc.want {
			t.Errorf("%q of %q: got %v", tc.path, tc.pattern, got)
		}
	}
}

// No pattern takes long, and none panics.
func FuzzIgnore(f *testing.F) {
	f.Add("a*b", "aab")
	f.Add(strings.Repeat("*a", 200), strings.Repeat("a", 250))
	f.Add(strings.Repeat("**/a/", 50)+"b", strings.Repeat("a/", 60)+"c")
	f.Add("[", "[")
	f.Add("[]-", "é")
	f.Fuzz(func(_ *testing.T, text, name string) {
		if len(name) < 1024 {
			parseIgnore(text).matchPath(name)
		}
	})
}
