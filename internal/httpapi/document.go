package httpapi

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
)

// Codes of faults that concern a body as a whole.
const (
	codeMalformed = "malformed_json"
	codeNesting   = "too_deep"
	codeDuplicate = "duplicate_key"
	codeNUL       = "nul_character"
)

// maxMembers bounds the fields of one object.
const maxMembers = 100_000

// checkDocument refuses a body that two readers could read in two ways, or
// that later parts (a database, a terminal, a recursive reader) would choke
// on: what is no JSON, invalid UTF-8, an object that has one key twice, NUL
// characters, deep nesting. The fault names the place.
func checkDocument(body []byte) error {
	if !utf8.Valid(body) {
		return fault.New(fault.Invalid, "The body is not valid UTF-8.").WithCode(codeMalformed)
	}
	var whole json.RawMessage
	if err := json.Unmarshal(body, &whole); err != nil {
		return malformed(err)
	}
	s := scanner{text: body}
	return s.scan()
}

func malformed(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		if strings.Contains(syntax.Error(), "max depth") {
			return fault.New(fault.Invalid, "The body is nested deeper than %d levels.", job.MaxNesting).WithCode(codeNesting)
		}
		return fault.New(fault.Invalid, "The body is not JSON: %s, at byte %d.", syntax.Error(), syntax.Offset).WithCode(codeMalformed)
	}
	return fault.New(fault.Invalid, "The body is not JSON: %s.", err.Error()).WithCode(codeMalformed)
}

// scanner walks over text that is known to be valid JSON.
type scanner struct {
	text  []byte
	at    int
	stack []frame
}

// frame is an object or array that the scanner stands in.
type frame struct {
	array bool
	index int
	key   string
	seen  map[string]struct{}
	want  bool // the next string is a key
}

func (s *scanner) scan() error {
	for s.at < len(s.text) {
		var err error
		switch c := s.text[s.at]; c {
		case '{', '[':
			err = s.open(c == '[')
		case '}', ']':
			s.stack = s.stack[:len(s.stack)-1]
			s.at++
		case ',':
			s.next()
			s.at++
		case '"':
			err = s.str()
		default:
			s.at++
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) open(array bool) error {
	if len(s.stack) >= job.MaxNesting {
		return fault.Field(s.path(), "is nested deeper than %d levels", job.MaxNesting).WithCode(codeNesting)
	}
	s.stack = append(s.stack, frame{array: array, want: !array})
	s.at++
	return nil
}

// next stands before the next member of the innermost object or array.
func (s *scanner) next() {
	f := &s.stack[len(s.stack)-1]
	f.index++
	f.want = !f.array
}

// str takes one string, a key or a value.
func (s *scanner) str() error {
	start := s.at
	escaped := false
	for s.at++; s.text[s.at] != '"'; s.at++ {
		if s.text[s.at] == '\\' {
			escaped = true
			s.at++
		}
	}
	s.at++
	raw := s.text[start:s.at]
	text := string(raw[1 : len(raw)-1])
	if escaped {
		if err := json.Unmarshal(raw, &text); err != nil {
			return malformed(err)
		}
	}
	if len(s.stack) > 0 {
		if f := &s.stack[len(s.stack)-1]; f.want {
			return s.member(f, text)
		}
	}
	if escaped && strings.ContainsRune(text, 0) { // an unescaped NUL is no JSON
		return fault.Field(s.path(), "contains a NUL character").WithCode(codeNUL)
	}
	return nil
}

func (s *scanner) member(f *frame, key string) error {
	f.want, f.key = false, key
	if strings.ContainsRune(key, 0) {
		return fault.Field(s.path(), "has a NUL character in its name").WithCode(codeNUL)
	}
	if _, twice := f.seen[key]; twice {
		return fault.Field(s.path(), "is there twice; keep one").WithCode(codeDuplicate)
	}
	if len(f.seen) >= maxMembers {
		return fault.Field(s.path(), "is one field too many: an object has at most %d", maxMembers)
	}
	if f.seen == nil {
		f.seen = map[string]struct{}{}
	}
	f.seen[key] = struct{}{}
	return nil
}

// path names where the scanner stands.
func (s *scanner) path() string {
	path := ""
	for i := range s.stack {
		if f := &s.stack[i]; f.array {
			path = element(path, f.index)
		} else {
			path = member(path, f.key)
		}
	}
	return clip(path, 200)
}

// member names a field below a path.
func member(path, key string) string {
	key = clip(key, 60)
	if path == "" {
		return key
	}
	return path + "." + key
}

// element names an element below a path.
func element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// clip keeps hostile input short in messages.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
