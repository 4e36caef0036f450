package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// groupFlag is the flag in which the spawner hands over the files of the
// control groups. It is one of gVisor's that is of no use without others, so
// that gVisor's own code carries the descriptors.
const groupFlag = "--sink-fds="

// joinGroups puts this process into its control groups, and returns the
// arguments without them. It comes before anything else, so that all that the
// process ever uses counts. The descriptors were opened by the spawner: this
// process has no right of its own to open them.
func joinGroups(args []string) ([]string, error) {
	var rest []string
	for _, arg := range args {
		text, ok := strings.CutPrefix(arg, groupFlag)
		if !ok {
			rest = append(rest, arg)
			continue
		}
		fd, err := strconv.Atoi(text)
		if err != nil || fd <= 2 {
			return nil, fmt.Errorf("%s is not a descriptor", arg)
		}
		f := os.NewFile(uintptr(fd), "group")
		_, err = f.WriteString("0")
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("join a control group: %w", err)
		}
	}
	return rest, nil
}

// hasLine reports whether a line of the text is exactly this.
func hasLine(text []byte, line string) bool {
	for l := range bytes.Lines(text) {
		if string(bytes.TrimSpace(l)) == line {
			return true
		}
	}
	return false
}
