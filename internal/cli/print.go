package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"golang.org/x/term"
)

// printJSON prints one value on one line.
func (inv *invocation) printJSON(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err = fmt.Fprintf(inv.Out, "%s\n", line)
	return err
}

// printTable prints rows in columns, the first of which is the heading.
func (inv *invocation) printTable(rows [][]string) error {
	w := tabwriter.NewWriter(inv.Out, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = plain(c)
		}
		_, _ = fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	return w.Flush()
}

// terminal returns the size of the terminal that w is, if it is one.
func terminal(w io.Writer) (width, height int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, 0, false
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 || height <= 0 { // some terminals do not know
		return 80, 24, true
	}
	return width, height, true
}

// moment writes a time: how long ago for people, exactly for programs.
func (inv *invocation) moment(t *time.Time, now time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	if _, _, ok := terminal(inv.Out); ok {
		return ago(now.Sub(*t))
	}
	return t.UTC().Format(time.RFC3339)
}

// ago writes an age as people say it.
func ago(d time.Duration) string {
	switch {
	case d < 0:
		return "in " + span(-d)
	case d < time.Second:
		return "now"
	}
	return span(d) + " ago"
}

func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func or(s *string, otherwise string) string {
	if s == nil || *s == "" {
		return otherwise
	}
	return *s
}

// plain makes a text from outside safe to print on one line: what a job is
// called must not be able to move the cursor.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r) || r == '\u202e' || r == '\u2066' || r == '\u2067' || r == '\u2068' || r == '\u2069' || r == '\u202d' || r == '\u202a' || r == '\u202b':
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// clip cuts a text to a width.
func clip(s string, width int) string {
	r := []rune(s)
	if len(r) <= width || width < 1 {
		return s
	}
	return string(r[:width-1]) + "…"
}

// harmless passes output of jobs on without what could take over a terminal:
// control characters other than tab, line feed and carriage return.
type harmless struct{ w io.Writer }

// Write drops control bytes. Bytes above 0x7f pass: they are text, or a
// terminal shows them as such.
func (h harmless) Write(p []byte) (int, error) {
	clean := bytes.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' && r != '\r' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, p)
	if _, err := h.w.Write(clean); err != nil {
		return 0, err
	}
	return len(p), nil
}
