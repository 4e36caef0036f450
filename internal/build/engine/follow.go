package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/containerd/errdefs"

	ours "github.com/aurea-dev/aurea/internal/build"
	"github.com/aurea-dev/aurea/internal/fault"
)

// Bounds of what an engine may say: what it says comes from what it runs.
const (
	maxSaid  = 256 << 20 // bytes in one build
	maxLine  = 4 << 10   // of one line; the rest of it is left out
	lastSaid = 5         // lines that an error repeats
)

// message is one of an engine's.
type message struct {
	Stream   string `json:"stream"`
	Status   string `json:"status"`
	ID       string `json:"id"`
	Progress struct {
		Current int64 `json:"current"`
		Total   int64 `json:"total"`
	} `json:"progressDetail"`
	Aux struct {
		ID string `json:"ID"`
	} `json:"aux"`
	Error  string `json:"error"`
	Detail struct {
		Message string `json:"message"`
	} `json:"errorDetail"`
}

var (
	step   = regexp.MustCompile(`^(?i:step) ([0-9]+)/([0-9]+) ?: ?(.*)$`)
	atLine = regexp.MustCompile(`(?i)(?:dockerfile )?parse error (?:on )?line ([0-9]+): *`)
	colour = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")
	noise  = regexp.MustCompile(`^(---> |Removing intermediate container |Successfully tagged )`)
	result = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// follower reads what an engine says of a build.
type follower struct {
	c    *buildContext
	tell func(ours.Step) error
	at   ours.Step // where it is
	rest strings.Builder
	last []string // lines since the instruction began
	id   string
}

// follow reads until the end of the build, and returns the image.
func (c *buildContext) follow(r io.Reader, tell func(ours.Step) error) (string, error) {
	f := &follower{c: c, tell: tell, at: ours.Step{Doing: "build"}}
	d := json.NewDecoder(io.LimitReader(r, maxSaid))
	for {
		var m message
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", fault.New(fault.Unavailable, "the Docker Engine broke off, or said too much: %w", err)
		}
		if err := f.take(m); err != nil {
			return "", err
		}
	}
	if !result.MatchString(f.id) {
		return "", fault.New(fault.Unavailable, "the Docker Engine did not say what it built")
	}
	return f.id, nil
}

func (f *follower) take(m message) error {
	if said := m.Error + m.Detail.Message; said != "" {
		if m.Detail.Message != "" {
			said = m.Detail.Message
		}
		return f.c.failed(f.at, said, f.last)
	}
	if m.Aux.ID != "" {
		f.id = m.Aux.ID
	}
	if m.Status != "" {
		s := f.at
		s.Doing, s.Text, s.Done, s.Total = "pull", clean(strings.TrimSpace(m.Status+" "+m.ID)), m.Progress.Current, m.Progress.Total
		return f.tell(s)
	}
	for piece := range strings.Lines(m.Stream) {
		if room := maxLine - f.rest.Len(); room > 0 {
			f.rest.WriteString(piece[:min(room, len(piece))])
		}
		if !strings.HasSuffix(piece, "\n") {
			continue
		}
		line := clean(f.rest.String())
		if f.rest.Reset(); line == "" {
			continue
		}
		if err := f.said(line); err != nil {
			return err
		}
	}
	return nil
}

// said takes one line.
func (f *follower) said(line string) error {
	if m := step.FindStringSubmatch(line); m != nil {
		f.at.Number, _ = strconv.Atoi(m[1])
		f.at.Of, _ = strconv.Atoi(m[2])
		f.at.Line, f.last = 0, nil
		if n := f.at.Number; n >= 1 && n <= len(f.c.lines) {
			f.at.Line = f.c.lines[n-1].line
		}
		line = clean(m[3])
	} else if noise.MatchString(line) {
		return nil
	} else if f.last = append(f.last, line); len(f.last) > lastSaid {
		f.last = f.last[1:]
	}
	s := f.at
	s.Text = line
	return f.tell(s)
}

// failed says in which line a build failed, and what was said last.
func (c *buildContext) failed(at ours.Step, said string, last []string) error {
	where := c.dockerfile
	if at.Line > 0 {
		where = fmt.Sprintf("%s line %d (%s)", c.dockerfile, at.Line, clipped(c.lines[at.Number-1].text))
	}
	text := clean(said)
	// An engine repeats the whole command before it says what became of it.
	if _, end, ok := cutLast(text, "' returned a non-zero code: "); ok {
		text = "the command ended with code " + end
	}
	if len(last) > 0 {
		text += "; it said last: " + strings.Join(last, " / ")
	}
	return fault.New(fault.Invalid, "%s: %s", where, text).WithCode("build_failed")
}

// refused puts into words that an engine did not even begin.
func (c *buildContext) refused(err error) error {
	said := clean(err.Error())
	if m := atLine.FindStringSubmatchIndex(said); m != nil {
		return fault.New(fault.Invalid, "%s line %s: %s", c.dockerfile, said[m[2]:m[3]], said[m[1]:]).WithCode("build_failed")
	}
	if errdefs.IsInvalidArgument(err) {
		return fault.New(fault.Invalid, "%s: %s", c.dockerfile, said).WithCode("build_failed")
	}
	return fault.New(fault.Unavailable, "ask the Docker Engine to build: %w", err)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func clipped(s string) string {
	const enough = 60
	if utf8.RuneCountInString(s) <= enough {
		return s
	}
	return string([]rune(s)[:enough]) + "…"
}

// clean makes a line of what came out of a container: no control characters,
// no broken text.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.TrimSpace(colour.ReplaceAllString(s, "")))
}
