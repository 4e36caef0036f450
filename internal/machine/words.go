package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

func as[T error](err error, into *T) bool { return errors.As(err, into) }

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 80)], "?") }

// isWord reports whether a text can be a name: letters, digits and a few signs.
func isWord(s string) bool {
	return s != "" && len(s) <= maxWord && !strings.ContainsFunc(s, func(c rune) bool {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		return !letter && c != '-' && c != '_' && c != '.'
	})
}

// CheckWord refuses what cannot be the name of an app, a machine or a region.
func CheckWord(field, word string) error {
	if isWord(word) && word != "." && word != ".." {
		return nil
	}
	return fault.Field(field, "%q is not a name: use at most %d letters, digits, dashes, dots and underscores", clip(word), maxWord)
}

// Split cuts a line into words as a shell does, with quotes and backslashes but
// without expanding anything: no shell runs it.
func Split(line string) (words []string, err error) {
	var word strings.Builder
	var quote byte
	begun := false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(line):
			i++
			if quote == '"' && line[i] != '"' && line[i] != '\\' && line[i] != '$' && line[i] != '`' {
				word.WriteByte('\\')
			}
			word.WriteByte(line[i])
			begun = true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, begun = c, true
		case quote == 0 && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			if begun {
				words = append(words, word.String())
				word.Reset()
				begun = false
			}
		default:
			word.WriteByte(c)
			begun = true
		}
	}
	if quote != 0 {
		return nil, fault.Field("cmd", "has a quote that does not end")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}

// signals are those that a machine is told by name, with their numbers.
func signals() map[string]int {
	return map[string]int{
		"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGABRT": 6, "SIGKILL": 9, "SIGUSR1": 10, "SIGSEGV": 11, "SIGUSR2": 12, "SIGPIPE": 13,
		"SIGALRM": 14, "SIGTERM": 15, "SIGCONT": 18, "SIGSTOP": 19, "SIGTSTP": 20, "SIGWINCH": 28,
	}
}

// DefaultSignal is what a machine is stopped with.
const DefaultSignal = 2

// Signal returns the number of a signal by its name, with or without SIG, or as
// digits; "" is the default.
func Signal(name string) (int, error) {
	if name == "" {
		return DefaultSignal, nil
	}
	upper := strings.ToUpper(name)
	if !strings.HasPrefix(upper, "SIG") {
		upper = "SIG" + upper
	}
	if n, ok := signals()[upper]; ok {
		return n, nil
	}
	if n, err := strconv.Atoi(name); err == nil && n >= 1 && n <= 31 {
		return n, nil
	}
	return 0, fault.Field("signal", "%q is not the name of a signal", clip(name))
}

// maxTime bounds every time that a caller chooses.
const maxTime = 24 * time.Hour

// Seconds reads a time that is written as a number of seconds, or as a text such
// as "10s"; nothing is 0.
func Seconds(field string, raw json.RawMessage) (time.Duration, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return 0, nil
	}
	text := string(raw)
	if raw[0] == '"' {
		if err := json.Unmarshal(raw, &text); err != nil {
			return 0, fault.Field(field, "cannot be read")
		}
		if d, err := time.ParseDuration(text); err == nil {
			return bounded(field, d)
		}
	}
	return ParseSeconds(field, text)
}

// ParseSeconds reads a number of seconds; "" is 0.
func ParseSeconds(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0 && n <= maxTime.Seconds()) {
		return 0, fault.Field(field, "must be a number of seconds from 0 to %d", int(maxTime.Seconds()))
	}
	return bounded(field, time.Duration(n*float64(time.Second)))
}

func bounded(field string, d time.Duration) (time.Duration, error) {
	if d < 0 || d > maxTime {
		return 0, fault.Field(field, "must be from 0 to %s", maxTime)
	}
	return d, nil
}
