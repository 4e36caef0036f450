package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Action is what a payload asks for.
type Action string

// The actions.
const (
	CreateFile Action = "create file"
	WriteFiles Action = "write files"
	Exec       Action = "exec"
	Run        Action = "run"
)

// Actions lists the actions that a payload can name.
func Actions() []Action { return []Action{CreateFile, WriteFiles, Exec, Run} }

// The file that a bare "create file" makes.
const (
	ResultFile = "result.txt"
	ResultText = "Task executed successfully in an isolated sandbox.\n"
)

// Work is a checked payload: what a worker has to do. A payload without an
// action is a "create file", and may carry whatever its own workers want to
// read; a payload with an action is held to that action's fields.
type Work struct {
	Action   Action            `json:"action"`
	Path     string            `json:"path,omitempty"`
	Content  *string           `json:"content,omitempty"`
	Files    map[string]string `json:"files,omitempty"`
	Command  []string          `json:"command,omitempty"`
	Language string            `json:"language,omitempty"`
	Code     string            `json:"code,omitempty"`
	Args     []string          `json:"args,omitempty"`
	Stdin    string            `json:"stdin,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Image    string            `json:"image,omitempty"`
	// Driver is the only one in which the work may be done; "" leaves it to
	// the worker.
	Driver string `json:"driver,omitempty"`
	// CPULimit is a number of processors, MemoryLimit a size such as "256m",
	// CPUTimeLimit seconds of processor time. They can ask for less than a
	// worker gives, not for more.
	CPULimit     *float64 `json:"cpu_limit,omitempty"`
	MemoryLimit  string   `json:"memory_limit,omitempty"`
	CPUTimeLimit *float64 `json:"cpu_time_limit,omitempty"`
}

// SessionModel is to whom the jobs of sessions are bound: the manager does them
// in the sandboxes of their sessions.
const SessionModel = "@session"

// ParseWork checks a payload. The fault names the field.
func ParseWork(payload json.RawMessage) (Work, error) {
	if len(payload) > MaxPayloadBytes {
		return Work{}, fault.New(fault.Invalid, "is %d bytes long; at most %d are allowed", len(payload), MaxPayloadBytes)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(payload, &fields); err != nil || fields == nil {
		return Work{}, fault.New(fault.Invalid, "must be a JSON object")
	}
	if err := checkJSON(payload); err != nil {
		return Work{}, err
	}
	action, named, err := actionOf(fields)
	if err != nil {
		return Work{}, err
	}
	if !named {
		return Work{Action: CreateFile}.complete()
	}
	var w Work
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&w); err != nil {
		return Work{}, decodeFault(err)
	}
	w.Action = action
	if err := w.onlyOwnFields(fields); err != nil {
		return Work{}, err
	}
	return w.complete()
}

// actionOf reads the action, forgiving case and the usual word separators.
func actionOf(fields map[string]json.RawMessage) (a Action, named bool, err error) {
	raw, ok := fields["action"]
	if !ok {
		return CreateFile, false, nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", true, fault.Field("action", "must be a string, one of %s", actionList())
	}
	word := Action(strings.ToLower(strings.NewReplacer("_", " ", "-", " ").Replace(strings.TrimSpace(s))))
	if !slices.Contains(Actions(), word) {
		return "", true, fault.Field("action", "%q is not an action; use one of %s", clip(s), actionList()).WithCode("unknown_action")
	}
	return word, true, nil
}

// onlyOwnFields refuses a field that the action would silently ignore.
func (w Work) onlyOwnFields(fields map[string]json.RawMessage) error {
	own := map[Action][]string{
		CreateFile: {"path", "content", "driver"},
		WriteFiles: {"files", "driver"},
		Exec:       {"command", "env", "stdin", "files", "image", "driver", "cpu_limit", "memory_limit", "cpu_time_limit"},
		Run:        {"language", "code", "args", "env", "stdin", "files", "image", "driver", "cpu_limit", "memory_limit", "cpu_time_limit"},
	}[w.Action]
	for name := range fields {
		if name != "action" && !slices.Contains(own, name) {
			return fault.Field(name, "does not belong to the action %q, which takes %s", w.Action, strings.Join(own, ", "))
		}
	}
	return nil
}

// complete fills defaults and checks what is left.
func (w Work) complete() (Work, error) {
	switch w.Action {
	case CreateFile:
		if w.Path == "" {
			w.Path = ResultFile
		}
		if w.Content == nil {
			text := ResultText
			w.Content = &text
		}
		if err := CheckPath("path", w.Path); err != nil {
			return Work{}, err
		}
		w.Files = map[string]string{w.Path: *w.Content}
	case WriteFiles:
		if len(w.Files) == 0 {
			return Work{}, fault.Field("files", "names no file; give a map from path to content")
		}
	case Exec:
		if len(w.Command) == 0 || w.Command[0] == "" {
			return Work{}, fault.Field("command", "must be a list that begins with a program, such as [\"ls\", \"-l\"]")
		}
	case Run:
		if w.Language == "" {
			return Work{}, fault.Field("language", "is missing")
		}
		if w.Code == "" {
			return Work{}, fault.Field("code", "is missing")
		}
	}
	return w, w.checkParts()
}

func (w Work) checkParts() error {
	for name := range w.Files {
		if err := CheckPath("files", name); err != nil {
			return err
		}
	}
	if err := w.checkLengths(); err != nil {
		return err
	}
	for name, value := range w.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return fault.Field("env", "%q is not a usable variable", clip(name))
		}
	}
	if strings.ContainsFunc(w.Driver, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }) || len(w.Driver) > MaxWord {
		return fault.Field("driver", "%q is not the name of a driver, such as \"gvisor\"", clip(w.Driver))
	}
	_, err := w.Limits()
	return err
}

// What a kernel takes: of one argument or variable, and of all together.
const (
	MaxArgument  = 128<<10 - 1
	MaxArguments = 768 << 10
)

// checkLengths refuses arguments with which no program can be started.
func (w Work) checkLengths() error {
	total := 0
	for field, list := range map[string][]string{"command": w.Command, "args": w.Args} {
		for i, arg := range list {
			if total += len(arg) + 1; len(arg) > MaxArgument {
				return fault.Field(fmt.Sprintf("%s[%d]", field, i), "is %d bytes long; a program takes at most %d in one argument: use a file or stdin", len(arg), MaxArgument).
					WithCode("argument_too_long")
			}
		}
	}
	for name, value := range w.Env {
		if total += len(name) + len(value) + 2; len(name)+len(value)+1 > MaxArgument {
			return fault.Field("env", "%q is %d bytes long; a program takes at most %d in one variable", clip(name), len(value), MaxArgument).
				WithCode("argument_too_long")
		}
	}
	if total > MaxArguments {
		return fault.Field("command", "arguments and environment are %d bytes long together; at most %d are allowed: use a file or stdin", total, MaxArguments).
			WithCode("argument_too_long")
	}
	return nil
}

// CheckPath refuses a path that does not stay below the workspace, or that
// some file system could read as another path.
func CheckPath(field, p string) error {
	switch {
	case p == "" || len(p) > 1024:
		return fault.Field(field, "a path must have 1 to 1024 bytes")
	case !utf8.ValidString(p) || strings.ContainsAny(p, "\x00\\"):
		return fault.Field(field, "%q has a backslash, a NUL or invalid UTF-8", clip(p))
	case strings.HasPrefix(p, "/") || path.Clean(p) != p || p == "." || p == ".." || strings.HasPrefix(p, "../"):
		return fault.Field(field, "%q must be a plain relative path below the workspace", clip(p))
	}
	for part := range strings.SplitSeq(p, "/") {
		if len(part) > 255 {
			return fault.Field(field, "%q has a name longer than 255 bytes", clip(p))
		}
	}
	return nil
}

// checkJSON refuses NUL characters, invalid UTF-8 and deep nesting anywhere in
// a document. It reads bytes and makes nothing of them, because it is asked
// several times for each job.
//
// Preconditions: doc is valid JSON.
func checkJSON(doc json.RawMessage) error {
	if !utf8.Valid(doc) {
		return fault.New(fault.Invalid, "is not valid UTF-8")
	}
	depth, text := 0, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case c == '"':
			text = !text
		case text && c == '\\': // the only way to a NUL character
			i++
			if bytes.HasPrefix(doc[i:], []byte("u0000")) {
				return fault.New(fault.Invalid, "contains a NUL character")
			}
		case text:
		case c == '{' || c == '[':
			if depth++; depth > MaxNesting {
				return fault.New(fault.Invalid, "is nested deeper than %d levels", MaxNesting)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// decodeFault turns a JSON error into a fault that names the field.
func decodeFault(err error) error {
	msg := err.Error()
	if name, ok := strings.CutPrefix(msg, "json: unknown field "); ok {
		return fault.Field(strings.Trim(name, `"`), "is not a field of a payload")
	}
	var te *json.UnmarshalTypeError
	if errors.As(err, &te) {
		return fault.Field(te.Field, "must be %s, not %s", shape(te.Type), te.Value)
	}
	return fault.New(fault.Invalid, "cannot be read: %s", msg)
}

// shape says in a user's words what a field of Work holds.
func shape(t reflect.Type) string {
	switch t.Kind() { //nolint:exhaustive // Work has no others
	case reflect.Slice:
		return "a list of strings"
	case reflect.Map:
		return "an object whose values are strings"
	default:
		return "a " + t.Kind().String()
	}
}

func actionList() string {
	words := make([]string, 0, len(Actions()))
	for _, a := range Actions() {
		words = append(words, `"`+string(a)+`"`)
	}
	return strings.Join(words, ", ")
}

// clip keeps hostile input short in messages.
func clip(s string) string {
	if len(s) <= 80 {
		return s
	}
	return strings.ToValidUTF8(s[:80], "") + "…"
}
