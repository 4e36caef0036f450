package live

import "testing"

func TestProjectsHaveOneName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int64{"": 0, "7": 7, "07": 0, "+7": 0, "-7": 0, "0": 0, "7 ": 0, "seven": 0, "9223372036854775807": 1<<63 - 1, "9223372036854775808": 0} {
		s := Spec{Labels: map[string]string{LabelProject: name}}
		if got := s.Project(); got != want {
			t.Errorf("%q is project %d, not %d", name, got, want)
		}
	}
}
