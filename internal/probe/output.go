package probe

import (
	"context"
	"strings"
	"sync"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// maxOutput bounds what is kept of what a probe says; it says a tenth of it.
const maxOutput = 64 << 10

// output keeps the standard output of a probe.
type output struct {
	mu   sync.Mutex
	said []byte
}

// Write implements sandbox.Sink.
func (o *output) Write(_ context.Context, f sandbox.Frame) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if f.Stream == sandbox.Stdout && len(o.said) < maxOutput {
		o.said = append(o.said, f.Data...)
	}
	return nil
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.said)
}

// line is what the probe said of one attempt.
type line struct{ word, detail string }

// parse reads lines of name, word and detail. They come from inside a sandbox:
// what has another form is dropped, and of two lines with one name the worse
// one counts.
func parse(text string) map[string]line {
	const most = 200
	said := map[string]line{}
	for raw := range strings.Lines(text) {
		if !strings.HasSuffix(raw, "\n") {
			continue // it was cut off
		}
		parts := strings.SplitN(strings.TrimSuffix(raw, "\n"), "\t", 3)
		if len(parts) != 3 || len(parts[0]) > 64 || len(said) >= 256 {
			continue
		}
		l := line{word: parts[1], detail: printable(parts[2], most)}
		if old, twice := said[parts[0]]; twice && old.word != l.word {
			l = line{word: "contradiction", detail: "reported twice"}
		}
		said[parts[0]] = l
	}
	return said
}

func printable(s string, most int) string {
	if len(s) > most {
		s = s[:most]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}
