package engine

import (
	"strings"
	"testing"
)

func TestInstructions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		dockerfile string
		want       []int
	}{
		"empty":                {"", nil},
		"comments and blanks":  {"# syntax=x\n\nFROM a\n# no\nRUN b\n", []int{3, 5}},
		"continued":            {"FROM a\nRUN b \\\n  c \\\n\n# d\n  e\nCMD f", []int{1, 2, 7}},
		"another escape":       {"# escape=`\nFROM a\nRUN b `\n  c\\\nCMD d\n", []int{2, 3, 5}},
		"an escape too late":   {"FROM a\n# escape=`\nRUN b `\nCMD c\n", []int{1, 3, 4}},
		"a here-document":      {"FROM a\nRUN <<EOF\nRUN no\nEOF\nCMD b\n", []int{1, 2, 5}},
		"lines as Windows has": {"FROM a\r\nRUN b \\\r\n c\r\nCMD d\r\n", []int{1, 2, 4}},
	} {
		var got []int
		for _, i := range instructions([]byte(tc.dockerfile)) {
			got = append(got, i.line)
		}
		if len(got) != len(tc.want) {
			t.Errorf("%s: lines %v, want %v", name, got, tc.want)
			continue
		}
		for i := range got {
			if got[i] != tc.want[i] {
				t.Errorf("%s: lines %v, want %v", name, got, tc.want)
			}
		}
	}
}

func FuzzInstructions(f *testing.F) {
	f.Add([]byte("FROM a\nRUN b \\\n c\n"))
	f.Fuzz(func(t *testing.T, dockerfile []byte) {
		n := strings.Count(string(dockerfile), "\n") + 1
		for _, i := range instructions(dockerfile) {
			if i.line < 1 || i.line > n || i.text == "" {
				t.Errorf("an instruction %q in line %d of %d", i.text, i.line, n)
			}
		}
	})
}
