package evidence

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMerge(t *testing.T) {
	t.Parallel()
	const base = "a\nb\nc\nd\ne\n"
	for name, tc := range map[string]struct {
		one, other, want string
		fails            bool
	}{
		"nothing":                {base, base, base, false},
		"one side":               {"a\nB\nc\nd\ne\n", base, "a\nB\nc\nd\ne\n", false},
		"apart":                  {"A\nb\nc\nd\ne\n", "a\nb\nc\nd\nE\nf\n", "A\nb\nc\nd\nE\nf\n", false},
		"a removal and a change": {"b\nc\nd\ne\n", "a\nb\nc\nd\nE\n", "b\nc\nd\nE\n", false},
		"the same":               {"a\nX\nc\nd\ne\n", "a\nX\nc\nd\ne\n", "a\nX\nc\nd\ne\n", false},
		"the same line":          {"a\nX\nc\nd\ne\n", "a\nY\nc\nd\ne\n", "", true},
		"lines that touch":       {"a\nX\nc\nd\ne\n", "a\nb\nY\nd\ne\n", "", true},
		"inserted at one place":  {"a\nX\nb\nc\nd\ne\n", "a\nY\nb\nc\nd\ne\n", "", true},
		"no last line feed":      {"A\nb\nc\nd\ne\n", "a\nb\nc\nd\ne", "A\nb\nc\nd\ne", false},
	} {
		for _, turn := range []bool{false, true} {
			one, other := tc.one, tc.other
			if turn {
				one, other = other, one
			}
			got, ok := Merge(base, one, other)
			if got != tc.want || ok == tc.fails {
				t.Errorf("%s: got %q, %v", name, got, ok)
			}
		}
	}
}

// Whatever a merge keeps is what both have kept, and who changed nothing has no
// say.
func TestMergeProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"a\n", "b\n", "c\n", "d\n"}), 0, 12), func(l []string) string { return strings.Join(l, "") })
		base, one, other := text.Draw(t, "base"), text.Draw(t, "one"), text.Draw(t, "other")
		if got, ok := Merge(base, one, base); !ok || got != one {
			t.Fatalf("with an unchanged other: %q, %v", got, ok)
		}
		there, ok1 := Merge(base, one, other)
		back, ok2 := Merge(base, other, one)
		if ok1 != ok2 || there != back {
			t.Fatalf("%q and %q depend on the turn", there, back)
		}
	})
}

func TestUnified(t *testing.T) {
	t.Parallel()
	if got := Unified("x", "a\nb\n", "a\nc\n"); got != "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n" {
		t.Errorf("got %q", got)
	}
	if got := Unified("x", "a\n", "a\n"); got != "" {
		t.Errorf("got %q", got)
	}
}
