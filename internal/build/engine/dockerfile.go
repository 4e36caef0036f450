package engine

import (
	"regexp"
	"strings"
)

// instruction is one of a Dockerfile's, and the line that it begins in.
type instruction struct {
	line int
	text string // its first line
}

var (
	escape  = regexp.MustCompile("^#[ \t]*escape[ \t]*=[ \t]*([\\\\`])[ \t]*$")
	aside   = regexp.MustCompile("^#[ \t]*[a-zA-Z][a-zA-Z0-9]*[ \t]*=")
	heredoc = regexp.MustCompile(`<<-?["']?([A-Za-z_][A-Za-z0-9_]*)["']?`)
)

// instructions finds the instructions, in the order in which an engine counts
// them: an engine says "Step 3/7", people look for a line.
func instructions(dockerfile []byte) []instruction {
	lines := strings.Split(strings.TrimPrefix(string(dockerfile), "\ufeff"), "\n")
	found, more := []instruction{}, `\`
	head, open, waiting := true, false, []string(nil)
	for i, raw := range lines {
		line := strings.TrimSpace(raw)
		if len(waiting) > 0 { // inside a here-document
			if line == waiting[0] {
				waiting = waiting[1:]
			}
			continue
		}
		if head = head && aside.MatchString(line); head {
			if m := escape.FindStringSubmatch(line); m != nil {
				more = m[1]
			}
		}
		if line == "" || line[0] == '#' {
			continue // also in the middle of an instruction
		}
		if !open {
			found = append(found, instruction{i + 1, line})
		}
		for _, m := range heredoc.FindAllStringSubmatch(line, -1) {
			waiting = append(waiting, m[1])
		}
		open = strings.HasSuffix(line, more)
	}
	return found
}
