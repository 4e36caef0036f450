package httpapi

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
)

// Object is a JSON object that is kept as it came.
type Object json.RawMessage

// MarshalJSON returns the object, or null when there is none.
func (o Object) MarshalJSON() ([]byte, error) {
	if len(o) == 0 {
		return []byte("null"), nil
	}
	return o, nil
}

// UnmarshalJSON keeps what it is given.
func (o *Object) UnmarshalJSON(raw []byte) error {
	*o = bytes.Clone(raw)
	return nil
}

// Schema describes it to OpenAPI.
func (Object) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true, Nullable: true}
}

// binder is implemented by types that read themselves.
type binder interface {
	bind(b *binding, path string, raw json.RawMessage)
}

// bind reads a document into a struct. The struct is the one truth for the
// reader and for OpenAPI: its fields are named by their json tags, exactly and
// with their case; one without omitempty is required, unless it says
// required:"false"; other fields are refused unless the struct says
// additionalProperties. All that is wrong is gathered, each fault under the path
// of its field.
func bind(body []byte, into any) error {
	if err := checkDocument(body); err != nil {
		return err
	}
	b := &binding{}
	b.value("", trim(body), reflect.ValueOf(into).Elem())
	if len(b.faults) > 0 {
		return b.faults
	}
	return nil
}

// maxFaults bounds how many faults are gathered from one body.
const maxFaults = 20

type binding struct{ faults problem.Faults }

func (b *binding) wrong(path, format string, args ...any) {
	if len(b.faults) < maxFaults {
		if path == "" {
			path = "body"
		}
		b.faults = append(b.faults, fault.Field(path, format, args...))
	}
}

// lacks notes a field that must be there and is not.
func (b *binding) lacks(path string) {
	if len(b.faults) < maxFaults {
		b.faults = append(b.faults, fault.Field(path, "is missing").WithCode(problem.CodeMissing))
	}
}

// value reads one value. null is as good as nothing.
func (b *binding) value(path string, raw json.RawMessage, v reflect.Value) {
	if len(b.faults) >= maxFaults {
		return
	}
	if own, ok := v.Addr().Interface().(binder); ok {
		own.bind(b, path, raw)
		return
	}
	if kind(raw) == "null" && path != "" {
		return
	}
	switch v.Interface().(type) {
	case Object:
		if b.is(path, raw, "an object") {
			v.SetBytes(raw)
		}
		return
	case json.RawMessage:
		v.SetBytes(raw)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		b.value(path, raw, v.Elem())
	case reflect.Struct:
		b.object(path, raw, v)
	case reflect.String:
		if b.is(path, raw, "a string") {
			v.SetString(text(raw))
		}
	case reflect.Bool:
		if b.is(path, raw, "true or false") {
			v.SetBool(string(raw) == "true")
		}
	case reflect.Int, reflect.Int64:
		b.integer(path, raw, v)
	case reflect.Float64:
		b.number(path, raw, v)
	default:
		b.wrong(path, "cannot be read") // a type that no body has
	}
}

func (b *binding) object(path string, raw json.RawMessage, v reflect.Value) {
	if !b.is(path, raw, "an object") {
		return
	}
	fields := members(raw)
	known := make([]string, 0, v.NumField())
	open := false
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Name == "_" {
			open = f.Tag.Get("additionalProperties") == "true"
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		known = append(known, name)
		part, there := fields[name]
		if (!there || kind(part) == "null") && options != "omitempty" && f.Tag.Get("required") != "false" {
			b.lacks(member(path, name))
			continue
		}
		switch most, err := strconv.Atoi(f.Tag.Get("maxItems")); {
		case there && err == nil:
			b.list(member(path, name), part, v.Field(i), most)
		case there:
			b.value(member(path, name), part, v.Field(i))
		}
	}
	if open {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(known, name) {
			b.wrong(member(path, name), "is not known here; the fields are %s", strings.Join(known, ", "))
		}
	}
}

// list reads a list of at most so many elements; it is refused before more
// than that is made of it.
func (b *binding) list(path string, raw json.RawMessage, v reflect.Value, most int) {
	if kind(raw) == "null" || !b.is(path, raw, "a list") {
		return
	}
	parts, fit := elements(raw, most)
	if !fit {
		b.wrong(path, "has more than %d elements", most)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(parts), len(parts)))
	for i, part := range parts {
		if kind(part) == "null" {
			b.wrong(element(path, i), "must not be null")
			continue
		}
		b.value(element(path, i), part, v.Index(i))
	}
}

// integer takes whole numbers that are written as such: 1.0 and 1e3 are the
// business of floating point.
func (b *binding) integer(path string, raw json.RawMessage, v reflect.Value) {
	if !b.is(path, raw, "a whole number") {
		return
	}
	n, err := strconv.ParseInt(string(raw), 10, v.Type().Bits())
	switch {
	case err == nil:
		v.SetInt(n)
	case strings.ContainsAny(string(raw), ".eE"):
		b.wrong(path, "must be a whole number, not %s", clip(string(raw), 40))
	default:
		b.wrong(path, "is out of range")
	}
}

func (b *binding) number(path string, raw json.RawMessage, v reflect.Value) {
	if !b.is(path, raw, "a number") {
		return
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || math.IsInf(n, 0) {
		b.wrong(path, "is out of range")
		return
	}
	v.SetFloat(n)
}

// is checks what a value is, in the words of the message.
func (b *binding) is(path string, raw json.RawMessage, want string) bool {
	got := kind(raw)
	if got == want || got == "a number" && want == "a whole number" {
		return true
	}
	b.wrong(path, "must be %s, not %s", want, got)
	return false
}

// kind says what a value is, in words for people. The value is valid JSON.
func kind(raw json.RawMessage) string {
	raw = trim(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}

func trim(raw json.RawMessage) json.RawMessage {
	return bytes.Trim(raw, " \t\r\n")
}

// members splits an object, elements a list, text reads a string: of JSON that
// was checked before, so that nothing can fail.
func members(raw json.RawMessage) (fields map[string]json.RawMessage) {
	_ = json.Unmarshal(raw, &fields)
	return fields
}

func elements(raw json.RawMessage, most int) (parts []json.RawMessage, fit bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	_, _ = dec.Token()
	for dec.More() {
		if len(parts) == most {
			return nil, false
		}
		var part json.RawMessage
		_ = dec.Decode(&part)
		parts = append(parts, part)
	}
	return parts, true
}

func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}
