package config

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value is a place in a Config that can be set from text and shown as text.
type value interface {
	Set(text string) error
	String() string
}

// Bytes is a number of bytes, written as "1048576", "64KiB", "10MB", "4G".
type Bytes int64

// units are powers of 1024, as memory is bought and limits are kept; the names
// that mean powers of 1000 elsewhere are read as people type them.
func units() []struct {
	name string
	size int64
} {
	return []struct {
		name string
		size int64
	}{
		{"tib", 1 << 40},
		{"gib", 1 << 30},
		{"mib", 1 << 20},
		{"kib", 1 << 10},
		{"tb", 1 << 40},
		{"gb", 1 << 30},
		{"mb", 1 << 20},
		{"kb", 1 << 10},
		{"t", 1 << 40},
		{"g", 1 << 30},
		{"m", 1 << 20},
		{"k", 1 << 10},
		{"b", 1},
		{"", 1},
	}
}

// ParseBytes reads a number of bytes.
func ParseBytes(text string) (Bytes, error) {
	s := strings.ToLower(strings.TrimSpace(text))
	for _, u := range units() {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/u.size {
			break
		}
		return Bytes(n * u.size), nil
	}
	return 0, fmt.Errorf("%q is not a size such as 512KiB, 64MiB or 10GiB", clip(text))
}

// Set reads the text.
func (b *Bytes) Set(text string) (err error) {
	n, err := ParseBytes(text)
	if err == nil {
		*b = n
	}
	return err
}

// String writes the size with the largest unit that divides it.
func (b Bytes) String() string {
	if b == 0 {
		return "0"
	}
	for _, u := range []struct {
		name string
		size Bytes
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// addressValue is an address that may hold a password. The rest is shown.
type addressValue struct{ to *Secret }

func (v addressValue) Set(text string) error { return v.to.Set(text) }

func (v addressValue) String() string {
	u, err := url.Parse(v.to.Reveal())
	if err != nil {
		return v.to.String()
	}
	q := u.Query()
	if q.Has("password") {
		q.Set("password", "xxxxx")
		u.RawQuery = q.Encode()
	}
	return u.Redacted()
}

// Secret is a text that is never shown.
type Secret string

// Set takes the text.
func (s *Secret) Set(text string) error { *s = Secret(strings.TrimSpace(text)); return nil }

// String hides the secret, so that no log and no print shows it by accident.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(hidden)"
}

// Reveal returns the secret.
func (s Secret) Reveal() string { return string(s) }

type textValue struct {
	to   *string
	some bool     // must not be empty
	of   []string // one of these, when not nil
}

func (v textValue) String() string { return *v.to }

func (v textValue) Set(text string) error {
	text = strings.TrimSpace(text)
	switch {
	case v.some && text == "":
		return errors.New("must not be empty")
	case strings.ContainsAny(text, "\x00\n\r"):
		return errors.New("must be one line")
	case v.of != nil && !slices.Contains(v.of, strings.ToLower(text)):
		return fmt.Errorf("%q is not one of %s", clip(text), strings.Join(v.of, ", "))
	case v.of != nil:
		text = strings.ToLower(text)
	}
	*v.to = text
	return nil
}

type intValue struct {
	to          *int
	least, most int
}

func (v intValue) String() string { return strconv.Itoa(*v.to) }

func (v intValue) Set(text string) error {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < v.least || n > v.most {
		return fmt.Errorf("%q is not a whole number from %d to %d", clip(text), v.least, v.most)
	}
	*v.to = n
	return nil
}

type durationValue struct {
	to          *time.Duration
	least, most time.Duration
}

func (v durationValue) String() string { return v.to.String() }

func (v durationValue) Set(text string) error {
	d, err := time.ParseDuration(strings.TrimSpace(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 500ms, 30s or 5m", clip(text))
	}
	if d < v.least || d > v.most {
		return fmt.Errorf("%s is outside %s to %s", d, v.least, v.most)
	}
	*v.to = d
	return nil
}

type listValue struct{ to *[]string }

func (v listValue) String() string { return strings.Join(*v.to, ",") }

func (v listValue) Set(text string) error {
	var list []string
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word != "" {
			list = append(list, word)
		}
	}
	*v.to = list
	return nil
}

type mapValue struct{ to *map[string]string }

func (v mapValue) String() string {
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(*v.to)) {
		pairs = append(pairs, k+"="+(*v.to)[k])
	}
	return strings.Join(pairs, ",")
}

func (v mapValue) Set(text string) error {
	m := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, to, ok := strings.Cut(pair, "=")
		name, to = strings.TrimSpace(name), strings.TrimSpace(to)
		if !ok || name == "" || to == "" {
			return fmt.Errorf("%q is not a pair such as Employee=worker_default", clip(pair))
		}
		if _, twice := m[name]; twice {
			return fmt.Errorf("%q is given twice", clip(name))
		}
		m[name] = to
	}
	*v.to = m
	return nil
}

// countsValue is numbers by name, each from 0 to most.
type countsValue struct {
	to   *map[string]int
	most int
}

// noCounts is how none at all is written, where it shall be seen.
const noCounts = "0"

func (v countsValue) String() string {
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(*v.to)) {
		pairs = append(pairs, fmt.Sprintf("%s=%d", k, (*v.to)[k]))
	}
	if len(pairs) == 0 {
		return noCounts
	}
	return strings.Join(pairs, ",")
}

func (v countsValue) Set(text string) error {
	words := map[string]string{}
	if strings.TrimSpace(text) == noCounts {
		text = ""
	}
	if err := (mapValue{&words}).Set(text); err != nil {
		return err
	}
	counts := map[string]int{}
	for name, word := range words {
		n, err := strconv.Atoi(word)
		if err != nil || n < 0 || n > v.most {
			return fmt.Errorf("%q is not a number from 0 to %d", clip(word), v.most)
		}
		counts[name] = n
	}
	*v.to = counts
	return nil
}

type levelValue struct{ to *slog.Level }

func (v levelValue) String() string { return strings.ToLower(v.to.String()) }

func (v levelValue) Set(text string) error {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "debug":
		*v.to = slog.LevelDebug
	case "info":
		*v.to = slog.LevelInfo
	case "warn", "warning":
		*v.to = slog.LevelWarn
	case "error":
		*v.to = slog.LevelError
	default:
		return fmt.Errorf("%q is not one of debug, info, warn, error", clip(text))
	}
	return nil
}

// clip keeps odd input short in messages.
func clip(s string) string {
	if len(s) <= 60 {
		return s
	}
	return strings.ToValidUTF8(s[:60], "") + "…"
}
