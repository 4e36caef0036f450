package evidence

import (
	"fmt"
	"strconv"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Bounds hold what one workspace may cost us. Code in a sandbox makes the
// workspace, so each of them is reached on purpose sooner or later.
type Bounds struct {
	Entries int   // files, folders and links together
	Depth   int   // folders within folders
	Bytes   int64 // of all files together
}

// DefaultBounds are far above what people leave behind and far below what
// hurts the machine.
func DefaultBounds() Bounds { return Bounds{Entries: 100_000, Depth: 64, Bytes: 2 << 30} }

// The bounds of names, as the host's file systems have them.
const (
	maxPath   = 4096
	maxName   = 255
	maxTarget = 4095
)

// meter counts what was taken so far against the bounds.
type meter struct {
	bounds  Bounds
	entries int
	bytes   int64
}

func (m *meter) entry(depth int) error {
	m.entries++
	if m.entries > m.bounds.Entries {
		return fault.New(fault.TooLarge, "the workspace has more than %d files and folders", m.bounds.Entries).
			WithCode("workspace_too_large")
	}
	if depth > m.bounds.Depth {
		return fault.New(fault.TooLarge, "the workspace has folders nested deeper than %d", m.bounds.Depth).
			WithCode("workspace_too_deep")
	}
	return nil
}

// file counts the bytes of a file before they are read. The sum cannot
// overflow: each part is compared with what is left.
func (m *meter) file(size int64) error {
	if size < 0 || size > m.bounds.Bytes-m.bytes {
		return fault.New(fault.TooLarge, "the files of the workspace are larger than %d bytes together", m.bounds.Bytes).
			WithCode("workspace_too_large")
	}
	m.bytes += size
	return nil
}

// skips lists what was left out and why, cut to a bound, because its length is
// in the hands of the code in the sandbox.
type skips struct {
	list []string
	more int
}

func (s *skips) add(name, why string) {
	const most = 100
	if len(s.list) >= most {
		s.more++
		return
	}
	s.list = append(s.list, printable(name)+": "+why)
}

func (s *skips) all() []string {
	if s.more == 0 {
		return s.list
	}
	return append(s.list, fmt.Sprintf("and %d more", s.more))
}

// printable makes a hostile name safe and short for a log or a terminal.
func printable(name string) string {
	const most = 200
	if len(name) > most {
		name = name[:most] + "..."
	}
	quoted := strconv.QuoteToGraphic(name)
	if quoted == `"`+name+`"` {
		return name
	}
	return quoted
}
