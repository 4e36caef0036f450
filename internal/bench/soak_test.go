package bench

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestLeaksAreWhatIsMore(t *testing.T) {
	t.Parallel()
	before := Census{
		Memory: map[string]int64{"manager": 50 << 20, "worker": 400 << 20}, Descriptors: map[string]int{"manager": 20, "worker": 30},
		Processes: 9, Groups: 12, Files: 100,
	}
	same := before
	same.Files, same.Memory = 110, map[string]int64{"manager": 100 << 20, "worker": 590 << 20}
	if leaks := before.leaks(same); len(leaks) > 0 {
		t.Errorf("by chance: %q", leaks)
	}
	after := Census{
		Memory: map[string]int64{"manager": 179 << 20, "worker": 601 << 20}, Descriptors: map[string]int{"manager": 29, "worker": 39},
		Processes: 10, Groups: 13, Files: 117,
	}
	leaks := before.leaks(after)
	for _, want := range []string{"the manager had 50 MiB", "the worker had 400 MiB", "20 descriptors", "30 descriptors", "processes", "control groups", "files"} {
		if !slices.ContainsFunc(leaks, func(l string) bool { return strings.Contains(l, want) }) {
			t.Errorf("%s is not among %q", want, leaks)
		}
	}
	var text bytes.Buffer
	if err := (Soak{Before: before, After: after, Leaks: leaks}).Print(&text); err != nil || strings.Count(text.String(), "LEAK") != 7 {
		t.Errorf("%v:\n%s", err, text.String())
	}
}
