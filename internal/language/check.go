package language

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Bounds of a registry.
const (
	maxFile       = 1 << 20 // bytes
	maxLanguages  = 100
	maxWords      = 64 // of a list or a command
	maxWord       = 1024
	maxName       = 32
	maxFileName   = 64
	maxCompile    = 5 * time.Minute
	maxImageBytes = 512
)

// DefaultCompileTimeout bounds a compile step that says nothing of it.
const DefaultCompileTimeout = 10 * time.Second

// Parse reads the entries of a registry file, an object with one list,
// "languages". What it does not know is refused, so that a slip of the pen is
// not a language that behaves otherwise than its entry says. The entries are
// checked each for itself; New checks them together.
func Parse(data []byte) ([]Language, error) {
	if len(data) > maxFile {
		return nil, fault.Field("languages", "has more than %d bytes", maxFile)
	}
	var file struct {
		Languages []Language `json:"languages"`
	}
	if err := strictly(data, &file); err != nil {
		return nil, fault.Field("languages", "cannot be read: %w", err)
	}
	if len(file.Languages) > maxLanguages {
		return nil, fault.Field("languages", "has %d entries; at most %d are taken", len(file.Languages), maxLanguages)
	}
	names := map[string]bool{}
	for _, l := range file.Languages {
		if err := l.check(); err != nil {
			return nil, err
		}
		if names[l.Name] {
			return nil, fault.Field("languages", "has two entries with the name %s", l.Name)
		}
		names[l.Name] = true
	}
	return file.Languages, nil
}

// strictly decodes one JSON value without unknown or repeated fields, and
// nothing behind it.
func strictly(data []byte, to any) error {
	if !utf8.Valid(data) {
		return errors.New("it is not UTF-8")
	}
	if err := onceEach(json.NewDecoder(bytes.NewReader(data))); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows its end")
	}
	return nil
}

// onceEach reads one value and refuses an object that has a field twice: the
// standard decoder would take the last, in either case of letters.
func onceEach(dec *json.Decoder) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	open, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	fields := map[string]bool{}
	for dec.More() {
		if open == '{' {
			key, err := dec.Token()
			if err != nil {
				return err
			}
			name := strings.ToLower(fmt.Sprint(key))
			if fields[name] {
				return fmt.Errorf("the field %q is there twice", clip(name))
			}
			fields[name] = true
		}
		if err := onceEach(dec); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}

// check refuses an entry that could not run, or that would mean something else
// than it says.
func (l Language) check() error {
	if !isName(l.Name) {
		return fault.Field("name", "%q is no name of a language: lower-case letters, digits and .+#_-, at most %d, a letter first", clip(l.Name), maxName)
	}
	bad := func(field, format string, args ...any) error {
		return fault.Field(field, "of the language %s: "+format, append([]any{l.Name}, args...)...)
	}
	if !isFileName(l.File) {
		return bad("file", "%q is no plain file name", clip(l.File))
	}
	for field, list := range map[string][]string{"aliases": l.Aliases, "extensions": l.Extensions, "shebangs": l.Shebangs, "needs": l.Needs} {
		if len(list) > maxWords {
			return bad(field, "has %d words; at most %d are taken", len(list), maxWords)
		}
	}
	for _, w := range l.Aliases {
		if !isName(w) {
			return bad("aliases", "%q is no name", clip(w))
		}
	}
	for _, w := range l.Extensions {
		if len(w) < 2 || w[0] != '.' || !isName(w[1:]) || path.Ext(w) != w {
			return bad("extensions", "%q is none, such as .py", clip(w))
		}
	}
	for _, w := range l.Shebangs {
		if !isFileName(w) {
			return bad("shebangs", "%q is no name of a program", clip(w))
		}
	}
	for _, w := range l.Needs {
		if !isProgram(w) {
			return bad("needs", "%q is neither a name of a program nor an absolute path", clip(w))
		}
	}
	if l.Warm != "" && !isName(l.Warm) {
		return bad("warm", "%q is no name of a launcher", clip(l.Warm))
	}
	if len(l.Image) > maxImageBytes || !plain(l.Image) || strings.HasPrefix(l.Image, "-") {
		return bad("image", "%q is no name of an image", clip(l.Image))
	}
	return l.checkCommands()
}

func (l Language) checkCommands() error {
	bad := func(field, format string, args ...any) error {
		return fault.Field(field, "of the language %s: "+format, append([]any{l.Name}, args...)...)
	}
	if why := checkCommand(l.Command, l.Compile != nil); why != "" {
		return bad("command", "%s", why)
	}
	if !slices.Contains(l.Command, FileWord) && !slices.Contains(l.Command, OutWord) {
		return bad("command", "names neither %s nor %s, so that the code would never run", FileWord, OutWord)
	}
	if l.Compile == nil {
		return nil
	}
	if why := checkCommand(l.Compile.Command, true); why != "" {
		return bad("compile.command", "%s", why)
	}
	if !slices.Contains(l.Compile.Command, FileWord) || l.Compile.Command[0] == OutWord {
		return bad("compile.command", "must be a program that is given %s", FileWord)
	}
	if l.Compile.Timeout <= 0 || l.Compile.Timeout > maxCompile {
		return bad("compile.timeout", "must be above 0 and at most %s", maxCompile)
	}
	return nil
}

// checkCommand says what is wrong with a command, or "".
func checkCommand(words []string, compiled bool) string {
	if len(words) == 0 || len(words) > maxWords {
		return fmt.Sprintf("has %d words; it takes 1 to %d", len(words), maxWords)
	}
	if first := words[0]; first != FileWord && first != OutWord && !isProgram(first) {
		return fmt.Sprintf("%q is neither a name of a program nor an absolute path", clip(first))
	}
	for _, w := range words {
		switch {
		case len(w) > maxWord || !plain(w):
			return fmt.Sprintf("%q is too long, or no plain text", clip(w))
		case w == OutWord && !compiled:
			return OutWord + " is what a compile step makes, and there is none"
		case w != FileWord && w != OutWord && strings.ContainsAny(w, "{}"):
			return fmt.Sprintf("%q: only the whole words %s and %s stand for something", clip(w), FileWord, OutWord)
		}
	}
	return ""
}

func isName(s string) bool {
	if s == "" || len(s) > maxName || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789.+#_-") == ""
}

// isFileName reports whether a name is plain enough for every system.
func isFileName(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-"
	return s != "" && len(s) <= maxFileName && s[0] != '.' && s[0] != '-' && strings.Trim(s, letters) == ""
}

func isProgram(s string) bool {
	if path.IsAbs(s) {
		return len(s) <= maxWord && plain(s) && path.Clean(s) == s && s != "/"
	}
	return isFileName(s)
}

// plain reports whether a text has no control characters.
func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f })
}
