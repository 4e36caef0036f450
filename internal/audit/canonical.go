package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// Version is that of the canonical form. Records of an older one stay as they
// are: a form is never edited, only added.
const Version = 1

// timeForm writes a moment, in UTC, always with its microseconds.
const timeForm = "2006-01-02T15:04:05.000000Z"

// Canonical returns the one way to write a sealed record: a JSON object on one
// line without spaces, the members sorted by name at every level and all
// there; strings in UTF-8 with no escapes but those that JSON demands (\" \\ \b
// \f \n \r \t, and \u00xx for other control characters); numbers as they were
// given. Its hash is the record's leaf.
func (r *Record) Canonical() []byte {
	b := make([]byte, 0, 320+r.Bytes())
	member := func(name, value string) {
		b = appendString(append(b, name...), value)
	}
	object := func(name string, raw json.RawMessage) {
		b = append(b, name...)
		if len(raw) == 0 {
			raw = json.RawMessage("null")
		}
		b = append(b, raw...)
	}
	member(`{"action":`, r.Action)
	member(`,"actor":`, r.Actor)
	object(`,"after":`, r.After)
	object(`,"before":`, r.Before)
	member(`,"category":`, string(r.Category))
	member(`,"message":`, r.Message)
	b = append(b, `,"metadata":{`...)
	for i, name := range slices.Sorted(maps.Keys(r.Metadata)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, name)
		b = appendString(append(b, ':'), r.Metadata[name])
	}
	member(`},"outcome":`, r.Outcome)
	member(`,"request_id":`, r.RequestID)
	b = strconv.AppendInt(append(b, `,"seq":`...), r.Seq, 10)
	member(`,"severity":`, string(r.Severity))
	member(`,"source":`, r.Source)
	member(`,"target":`, r.Target)
	member(`,"timestamp":`, r.At.UTC().Format(timeForm))
	b = strconv.AppendInt(append(b, `,"version":`...), Version, 10)
	return append(b, '}')
}

// Leaf returns the hash of a sealed record: SHA-256 of a zero byte and the
// canonical form.
func (r *Record) Leaf() tlog.Hash { return tlog.RecordHash(r.Canonical()) }

// Parse reads a record in canonical form. Text that says the same in another
// form is an error: its hash would be another one.
func Parse(line []byte) (Record, error) {
	var w struct {
		Action    string            `json:"action"`
		Actor     string            `json:"actor"`
		After     json.RawMessage   `json:"after"`
		Before    json.RawMessage   `json:"before"`
		Category  Category          `json:"category"`
		Message   string            `json:"message"`
		Metadata  map[string]string `json:"metadata"`
		Outcome   string            `json:"outcome"`
		RequestID string            `json:"request_id"`
		Seq       int64             `json:"seq"`
		Severity  Severity          `json:"severity"`
		Source    string            `json:"source"`
		Target    string            `json:"target"`
		Timestamp string            `json:"timestamp"`
		Version   int               `json:"version"`
	}
	if err := json.Unmarshal(line, &w); err != nil {
		return Record{}, fmt.Errorf("read audit record: %w", err)
	}
	if w.Version != Version {
		return Record{}, fmt.Errorf("read audit record: version %d is not known here", w.Version)
	}
	at, err := time.Parse(timeForm, w.Timestamp)
	if err != nil {
		return Record{}, fmt.Errorf("read audit record: %w", err)
	}
	r := Record{
		Seq: w.Seq, At: at, Category: w.Category, Severity: w.Severity, Action: w.Action, Message: w.Message, Source: w.Source,
		Actor: w.Actor, Target: w.Target, Outcome: w.Outcome, RequestID: w.RequestID, Before: w.Before, After: w.After, Metadata: w.Metadata,
	}
	if err := r.Seal(w.Seq, at); err != nil {
		return Record{}, err
	}
	if !bytes.Equal(r.Canonical(), line) {
		return Record{}, errors.New("read audit record: it is not in canonical form")
	}
	return r, nil
}

// canonicalJSON writes a JSON value in canonical form.
func canonicalJSON(raw []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read JSON: there is something behind the value")
	}
	return appendValue(nil, v), nil
}

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(b, v)
	case json.Number:
		return append(b, v...)
	case string:
		return appendString(b, v)
	case []any:
		b = append(b, '[')
		for i, item := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(b, item)
		}
		return append(b, ']')
	case map[string]any:
		b = append(b, '{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(append(appendString(b, name), ':'), v[name])
		}
		return append(b, '}')
	default:
		return append(b, "null"...)
	}
}

// appendString is ours and not the standard library's, which changes the
// escapes that it chooses from release to release.
func appendString(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ':
			b = append(b, c)
		case c == '\b':
			b = append(b, '\\', 'b')
		case c == '\f':
			b = append(b, '\\', 'f')
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
	}
	return append(b, '"')
}
