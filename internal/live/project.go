package live

import "strconv"

// LabelProject is the label by which a sandbox belongs to a project.
const LabelProject = "project"

// ProjectOf is the number of the project that a label or a session names; 0 is
// none. Only the one way to write a number counts, so that the label that a kill
// switch looks for and the number mean the same.
func ProjectOf(name string) int64 {
	n, err := strconv.ParseInt(name, 10, 64)
	if err != nil || n <= 0 || strconv.FormatInt(n, 10) != name {
		return 0
	}
	return n
}

// Project is the project that a sandbox belongs to; 0 is none.
func (s *Spec) Project() int64 { return ProjectOf(s.Labels[LabelProject]) }
