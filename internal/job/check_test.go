package job_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
)

func TestCheckObject(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{"": "{}", "null": "{}", " null ": "{}", "{}": "{}", `{"a": [1]}`: `{"a": [1]}`} {
		got, err := job.CheckObject("details", json.RawMessage(doc), 100)
		if err != nil || string(got) != want {
			t.Errorf("%q became %q, %v", doc, got, err)
		}
	}
	for _, doc := range []string{"1", `"x"`, "[]", "{", "{}{}", `{"a":"\u0000"}`, "{\"a\":\"\xff\"}", `{"a":"` + strings.Repeat("x", 100) + `"}`} {
		_, err := job.CheckObject("details", json.RawMessage(doc), 100)
		if !fault.Is(err, fault.Invalid) || !strings.HasPrefix(err.Error(), "details: ") {
			t.Errorf("%q: %v", doc, err)
		}
	}
}

func TestCheckWordAndReason(t *testing.T) {
	t.Parallel()
	for _, w := range []string{"", " ", "a\x00", "\xff", "a\x1b", strings.Repeat("x", 101)} {
		if err := job.CheckWord("worker_id", w); !fault.Is(err, fault.Invalid) {
			t.Errorf("the word %q passed", w)
		}
	}
	if err := job.CheckWord("worker_id", "employee_ollama é"); err != nil {
		t.Error(err)
	}
	if err := job.CheckReason("reason", "two\nlines"); err != nil {
		t.Error(err)
	}
	if err := job.CheckReason("reason", strings.Repeat("x", 501)); !fault.Is(err, fault.Invalid) {
		t.Error("an endless reason passed")
	}
}

func FuzzCheckObject(f *testing.F) {
	for _, seed := range []string{"", "null", "{}", `{"a":{"b":[1,"x\u0000"]}}`, "[", "{\"\xff\":1}", `{"a":1}x`, `{"a\\u0000":"\\\u0000"}`, `{"\u0000":"[{"}`, strings.Repeat(`{"a":[`, 40)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		got, err := job.CheckObject("details", doc, 1<<10)
		if good := acceptable(doc); good != (err == nil) {
			t.Fatalf("%q: got error %v, want it taken: %v", doc, err, good)
		}
		if err != nil {
			demandFault(t, err)
			return
		}
		var fields map[string]any
		if err := json.Unmarshal(got, &fields); err != nil || fields == nil || !utf8.Valid(got) || len(got) > 1<<10 {
			t.Fatalf("%q passed as %q: %v", doc, got, err)
		}
	})
}

// acceptable judges as CheckObject should, by reading token by token.
func acceptable(doc []byte) bool {
	var fields map[string]json.RawMessage
	if len(doc) > 1<<10 || len(doc) > 0 && json.Unmarshal(doc, &fields) != nil {
		return false
	}
	if fields == nil {
		return true // nothing, or null
	}
	dec, depth := json.NewDecoder(bytes.NewReader(doc)), 0
	dec.UseNumber()
	for {
		tok, err := dec.Token()
		if err != nil {
			return utf8.Valid(doc) // the end
		}
		switch tok := tok.(type) {
		case json.Delim:
			if depth++; tok == '}' || tok == ']' {
				depth -= 2
			}
			if depth > job.MaxNesting {
				return false
			}
		case string:
			if strings.ContainsRune(tok, 0) {
				return false
			}
		}
	}
}
