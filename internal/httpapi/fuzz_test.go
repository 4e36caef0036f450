package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
	"github.com/aurea-dev/aurea/internal/job"
)

func seeds(f *testing.F, more ...string) {
	f.Helper()
	for _, s := range append(more,
		`{}`, `[]`, `""`, `null`, `1`, ` {"a":1} `, `{"a":1,"a":2}`, `{"a\u0000":"\u0000"}`, `{"a":`, "\xff", `{"":{"":[{"":1}]}}`,
		strings.Repeat("[", 70)+strings.Repeat("]", 70), `{"a":"\ud800"}`, `{"a":"\\\"","b":["x,y","{"]}`, `-0`, `1e400`,
	) {
		f.Add([]byte(s))
	}
}

// demandInvalid fails unless a refusal is the caller's fault, said in words.
func demandInvalid(t *testing.T, err error) {
	t.Helper()
	if p := problem.From(err); p.Status != 422 || p.Detail == "" || !utf8.ValidString(p.Detail) {
		t.Fatalf("refused with %d %q: %v", p.Status, p.Detail, err)
	}
}

// ambiguous is an independent, slow reading of what checkDocument promises.
func ambiguous(body []byte) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var value func(depth int) error
	value = func(depth int) error {
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		if s, ok := tok.(string); ok && strings.ContainsRune(s, 0) {
			return errors.New("NUL")
		}
		d, ok := tok.(json.Delim)
		if !ok {
			return nil
		}
		if depth == job.MaxNesting {
			return errors.New("deep")
		}
		seen := map[string]bool{}
		for dec.More() {
			if d == '{' {
				key, err := dec.Token()
				if err != nil {
					return err
				}
				name, _ := key.(string)
				if seen[name] || strings.ContainsRune(name, 0) {
					return errors.New("bad key")
				}
				seen[name] = true
			}
			if err := value(depth + 1); err != nil {
				return err
			}
		}
		_, err = dec.Token()
		return err
	}
	return value(0)
}

func FuzzDocument(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		err := checkDocument(body)
		sound := utf8.Valid(body) && json.Valid(body) && ambiguous(body) == nil
		if (err == nil) != sound {
			t.Fatalf("%q: checked as %v, but sound is %v", body, err, sound)
		}
		if err != nil {
			demandInvalid(t, err)
		}
	})
}

func FuzzPRD(f *testing.F) {
	seeds(f, `{"project_id":1,"title":"Test PRD","tasks":[{"role":"Employee","payload":{"action":"create file"}}]}`,
		`{"title":"t","more":[1],"tasks":[{"key":"a"},{"key":"b","depends_on":["a"],"timeout_seconds":5,"max_retries":0,"priority":-1,"validate":true}]}`,
		`{"title":"t","tasks":[{"timeout_seconds":9223372036854775807}]}`)
	f.Fuzz(func(t *testing.T, body []byte) {
		prd, err := decodePRD(body)
		if err != nil {
			demandInvalid(t, err)
			return
		}
		if !bytes.Equal(prd.Source, body) {
			t.Fatal("the source was changed")
		}
		if _, _, err := prd.Plan("local", time.Unix(0, 0)); err != nil {
			demandInvalid(t, err)
		}
	})
}

// fuzzBody fuzzes the reader of one kind of body.
func fuzzBody[T any](f *testing.F, check func(*testing.T, T), more ...string) {
	f.Helper()
	seeds(f, more...)
	f.Fuzz(func(t *testing.T, body []byte) {
		var v T
		if err := bind(body, &v); err != nil {
			demandInvalid(t, err)
			return
		}
		check(t, v)
	})
}

func isObject(t *testing.T, o Object) {
	t.Helper()
	if len(o) > 0 && (!json.Valid(o) || o[0] != '{') {
		t.Fatalf("took %q for an object", o)
	}
}

func FuzzHolder(f *testing.F) {
	fuzzBody(f, func(*testing.T, HolderBody) {}, `"w"`, `{"worker_id":"w","fence":3}`, `{"fence":1.0}`)
}

func FuzzComplete(f *testing.F) {
	fuzzBody(f, func(t *testing.T, b CompleteBody) {
		if b.Success == nil {
			t.Fatal("a result that says neither")
		}
		isObject(t, b.Details)
	}, `{"success":true,"details":{"x":[1,2]},"fence":1,"worker_id":"w"}`, `{"success":"no"}`)
}

func FuzzSubmitWork(f *testing.F) {
	fuzzBody(f, func(t *testing.T, b SubmitWorkBody) { isObject(t, b.Details) }, `{"details":{},"fence":1}`)
}

func FuzzStream(f *testing.F) {
	fuzzBody(f, func(t *testing.T, b StreamBody) {
		if strings.ContainsRune(b.Chunk, 0) || !utf8.ValidString(b.Chunk) {
			t.Fatalf("took %q", b.Chunk)
		}
	}, `{"chunk":"x","final":true}`)
}

func FuzzValidate(f *testing.F) {
	fuzzBody(f, func(t *testing.T, b ValidateBody) {
		if b.Confidence == nil {
			t.Fatal("no confidence")
		}
		v := job.Validation{WorkerID: b.WorkerID, Ticks: b.Ticks, Confidence: *b.Confidence}
		if err := v.Check(); err != nil {
			demandInvalid(t, err)
		} else if v.Passes() && v.Confidence < job.PassConfidence {
			t.Fatal("passes without confidence")
		}
	}, `{"worker_id":"v","ticks":{"a":true},"confidence":0.7}`, `{"ticks":[{"type":"a","result":"pass"},{"tick_type":"b","passed":false}],"confidence":1}`)
}

func FuzzAssign(f *testing.F) {
	fuzzBody(f, func(*testing.T, AssignBody) {}, `"m"`, `{"model":"m"}`)
}

func FuzzCancel(f *testing.F) {
	fuzzBody(f, func(*testing.T, CancelBody) {}, `{"reason":"r"}`)
}

func FuzzCursor(f *testing.F) {
	for _, s := range []string{"", encodeCursor(1), encodeCursor(1 << 62), "ajE6LTE", "%", "ajE6"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		seq, err := decodeCursor(s)
		switch {
		case err != nil && !fault.Is(err, fault.Invalid):
			t.Fatal(err)
		case err == nil && s != "" && seq <= 0:
			t.Fatalf("%q names %d", s, seq)
		}
	})
}

func FuzzWords(f *testing.F) {
	for _, s := range []string{"", "a", "a,b", ",,", " a , b ", "\x00", "é,ü"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := words("query.type", s)
		if err != nil {
			demandInvalid(t, err)
			return
		}
		for _, w := range list {
			if w == "" || strings.ContainsAny(w, ",\n\x00") {
				t.Fatalf("%q has the word %q", s, w)
			}
		}
	})
}
