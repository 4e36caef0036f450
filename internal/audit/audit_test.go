package audit

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"
)

// TestCanonicalForm holds version 1 of the form: a change of it would change
// the hash of every record that was ever stored.
func TestCanonicalForm(t *testing.T) {
	t.Parallel()
	r := Record{
		At: time.Date(2026, 11, 16, 2, 3, 4, 5678, time.FixedZone("", 3600)), Category: Access, Action: "job.cancel", Message: "a \"b\" \\ \x01\n<&>\u2028 日本",
		Source: "queue", Actor: "local", Target: "j1", RequestID: "r1",
		Before: json.RawMessage(` {"b": [1.50, 1e400, true, null], "a": {"z":"\u0041","y":"\u0000"}} `), Metadata: map[string]string{"b": "2", "a": "1"},
	}
	if err := r.Seal(7, time.Time{}); err != nil {
		t.Fatal(err)
	}
	want := `{"action":"job.cancel","actor":"local","after":null,"before":{"a":{"y":"\u0000","z":"A"},"b":[1.50,1e400,true,null]},"category":"access",` +
		`"message":"a \"b\" \\ \u0001\n<&>` + "\u2028" + ` 日本","metadata":{"a":"1","b":"2"},"outcome":"done","request_id":"r1","seq":7,"severity":"info",` +
		`"source":"queue","target":"j1","timestamp":"2026-11-16T01:03:04.000005Z","version":1}`
	if got := string(r.Canonical()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := r.Leaf().String(), tlog.RecordHash([]byte(want)).String(); got != want {
		t.Errorf("the leaf is %s, want %s", got, want)
	}
}

func anyRecord(r *rapid.T) Record {
	text := func(what string) string {
		return rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"\x00", "a\xffb", strings.Repeat("é", 5000)})).Draw(r, what)
	}
	state := func(what string) json.RawMessage {
		return json.RawMessage(rapid.SampledFrom([]string{"", "null", "{", `{"b":1,"a":[{}," "]}`, `"` + strings.Repeat("x", 9000) + `"`, "\"\xff\"", "1 2"}).Draw(r, what))
	}
	return Record{
		At: time.Unix(rapid.Int64Range(0, 1<<33).Draw(r, "at"), rapid.Int64Range(0, 1e9).Draw(r, "ns")), Category: rapid.SampledFrom(Categories()).Draw(r, "category"),
		Severity: rapid.SampledFrom(Severities()).Draw(r, "severity"), Action: text("action"), Message: text("message"), Source: text("source"),
		Actor: text("actor"), Target: text("target"), Outcome: text("outcome"), RequestID: text("request"), Before: state("before"), After: state("after"),
		Metadata: rapid.MapOfN(rapid.String(), rapid.String(), 0, 40).Draw(r, "metadata"),
	}
}

// TestSealedRecordsComeBack holds Seal, Canonical and Parse together: whatever
// is appended is bounded, and reads back as the same record.
func TestSealedRecordsComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		rec := anyRecord(r)
		if err := rec.Seal(3, time.Time{}); err != nil {
			r.Fatal(err)
		}
		line := rec.Canonical()
		if !json.Valid(line) || len(rec.Message) > MaxMessage || len(rec.Before) > MaxState || len(rec.Metadata) > MaxMetadata || strings.ContainsAny(string(line), "\x00\n") {
			r.Fatalf("sealed as %q", line)
		}
		back, err := Parse(line)
		if err != nil {
			r.Fatalf("parse %s: %v", line, err)
		}
		if string(back.Canonical()) != string(line) {
			r.Fatalf("came back as %s, was %s", back.Canonical(), line)
		}
	})
}

func TestOtherFormsAreRefused(t *testing.T) {
	t.Parallel()
	r := Record{Category: Policy, At: time.Unix(1, 0)}
	if err := r.Seal(1, time.Time{}); err != nil {
		t.Fatal(err)
	}
	line := string(r.Canonical())
	for _, bad := range []string{
		"", "null", "{}", line + " ", strings.Replace(line, `"seq":1`, `"seq":1.0`, 1), strings.Replace(line, `"seq":1`, `"seq":2,"seq":1`, 1),
		strings.Replace(line, `"version":1`, `"version":2`, 1), strings.Replace(line, `{"action"`, `{"Action"`, 1), strings.Replace(line, "policy", "politics", 1),
		strings.Replace(line, "01.000000Z", "01Z", 1),
	} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	if err := (&Record{}).Seal(1, time.Time{}); err == nil {
		t.Error("a record without a category was sealed")
	}
	if err := (&Record{Category: Policy, Severity: "loud"}).Seal(1, time.Time{}); err == nil {
		t.Error("a severity that there is not was sealed")
	}
}

func FuzzParse(f *testing.F) {
	r := Record{Category: Policy, At: time.Unix(1, 0), Before: json.RawMessage(`{"a":1}`), Metadata: map[string]string{"a": "b"}}
	if err := r.Seal(1, time.Time{}); err != nil {
		f.Fatal(err)
	}
	f.Add(r.Canonical())
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if r, err := Parse(line); err == nil && string(r.Canonical()) != string(line) {
			t.Errorf("%q was taken as %q", line, r.Canonical())
		}
	})
}

// TestTreeIsThatOfTlog holds our right edge against tlog's own code.
func TestTreeIsThatOfTlog(t *testing.T) {
	t.Parallel()
	var tree Tree
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) (hashes []tlog.Hash, err error) {
		for _, i := range indexes {
			hashes = append(hashes, stored[i])
		}
		return hashes, nil
	})
	for n := range int64(300) {
		root, err := tlog.TreeHash(n, reader)
		if err != nil || root != tree.Root() && n > 0 {
			t.Fatalf("the root of %d is %s, want %s (%v)", n, tree.Root(), root, err)
		}
		leaf := tlog.RecordHash(fmt.Append(nil, n))
		want, err := tlog.StoredHashesForRecordHash(n, leaf, reader)
		if err != nil {
			t.Fatal(err)
		}
		got := tree.Add(leaf)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("record %d completes %v, want %v", n, got, want)
		}
		for i := range got {
			seq, level := Place(int64(len(stored) + i))
			if seq != n+1 || level != i {
				t.Fatalf("hash %d is looked for with record %d at %d, is with %d at %d", len(stored)+i, seq, level, n+1, i)
			}
		}
		stored = append(stored, got...)
		if tree, err = ReadTree(tree.Size, tree.Peaks()); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []struct {
		size  int64
		peaks int
	}{{-1, 0}, {3, 32}, {1, 31}, {0, 32}} {
		if _, err := ReadTree(bad.size, make([]byte, bad.peaks)); err == nil {
			t.Errorf("a tree of size %d with %d bytes was taken", bad.size, bad.peaks)
		}
	}
}
