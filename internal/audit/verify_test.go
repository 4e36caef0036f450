package audit

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// keyPair makes a key.
func keyPair(t testing.TB, name string) (note.Signer, note.Verifier) {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		t.Fatal(err)
	}
	s, err1 := note.NewSigner(skey)
	v, err2 := note.NewVerifier(vkey)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return s, v
}

// book is a log in memory that an attacker may do anything to.
type book struct {
	t       testing.TB
	signer  note.Signer
	entries []Entry
	signed  map[int]string // checkpoints by size
}

// newBook writes n records, about a name, with a checkpoint after every step.
func newBook(t testing.TB, signer note.Signer, about string, n, step int) *book {
	b := &book{t: t, signer: signer, signed: map[int]string{}}
	var tree Tree
	for i := range n {
		r := Record{At: time.Unix(int64(i), 0), Category: Access, Action: "job.cancel", Target: fmt.Sprint(about, i+1)}
		if err := r.Seal(int64(i+1), time.Time{}); err != nil {
			t.Fatal(err)
		}
		b.entries = append(b.entries, Entry{Seq: r.Seq, Leaf: r.Leaf(), Record: &r})
		tree.Add(r.Leaf())
		if (i+1)%step == 0 {
			text, err := Checkpoint{Origin: signer.Name(), Size: tree.Size, Root: tree.Root()}.Sign(signer)
			if err != nil {
				t.Fatal(err)
			}
			b.signed[i+1] = text
		}
	}
	return b
}

func (b *book) export() []byte {
	var out bytes.Buffer
	for i, e := range b.entries {
		if err := WriteEntry(&out, e); err != nil {
			b.t.Fatal(err)
		}
		if text, ok := b.signed[i+1]; ok {
			if err := WriteCheckpoint(&out, text); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	return out.Bytes()
}

// number gives the entries from one on the numbers of their places, and rehash
// the hashes of what they say: what a careful attacker does.
func (b *book) number(from int) *book {
	for i := from - 1; i < len(b.entries); i++ {
		r := *b.entries[i].Record
		r.Seq = int64(i + 1)
		b.entries[i] = Entry{Seq: r.Seq, Leaf: b.entries[i].Leaf, Record: &r}
	}
	return b
}

func (b *book) rehash() *book {
	for i := range b.entries {
		b.entries[i].Leaf = b.entries[i].Record.Leaf()
	}
	return b
}

func (b *book) change(n int) *book {
	r := *b.entries[n-1].Record
	r.Target = "somebody else"
	b.entries[n-1].Record = &r
	return b
}

// TestAttacksOnTheLog is list G: what is done to a log of 20 records, of which
// every fifth has a checkpoint, and where it is found.
func TestAttacksOnTheLog(t *testing.T) {
	t.Parallel()
	signer, key := keyPair(t, "aurea.audit/test")
	stranger, _ := keyPair(t, "aurea.audit/test")
	tests := []struct {
		name        string
		attack      func(b *book)
		first, last int64
	}{
		{"flip", func(b *book) { b.change(7) }, 7, 7},
		{"flip the hash", func(b *book) { b.entries[6].Leaf[3] ^= 1 }, 7, 7},
		{"flip with the hash", func(b *book) { b.change(7).rehash() }, 6, 10},
		{"flip the last", func(b *book) { b.change(20) }, 20, 20},
		{"drop", func(b *book) { b.entries = slices.Delete(b.entries, 6, 7) }, 7, 7},
		{"drop three", func(b *book) { b.entries = slices.Delete(b.entries, 6, 9) }, 7, 9},
		{"drop and number anew", func(b *book) { b.entries = slices.Delete(b.entries, 6, 7); b.number(7) }, 7, 7},
		{"drop, number and hash anew", func(b *book) { b.entries = slices.Delete(b.entries, 6, 7); b.number(7).rehash() }, 6, 10},
		{"drop the first", func(b *book) { b.entries = b.entries[1:] }, 1, 1},
		{"drop all but the hash", func(b *book) { b.entries[6].Record = nil }, 7, 7},
		{"drop the first, as if purged", func(b *book) { b.entries[0].Record = nil; b.entries[1].Record = nil }, 1, 2},
		{"reorder", func(b *book) { b.entries[6], b.entries[7] = b.entries[7], b.entries[6] }, 7, 7},
		{"reorder, number and hash anew", func(b *book) { b.entries[6], b.entries[7] = b.entries[7], b.entries[6]; b.number(7).rehash() }, 6, 10},
		{"truncate", func(b *book) { b.entries = b.entries[:17] }, 18, 20},
		{"truncate, with the checkpoints", func(b *book) { b.entries = b.entries[:12] }, 13, 20},
		{"splice another's record in", func(b *book) { b.entries[6] = newBook(b.t, stranger, "other", 7, 99).entries[6] }, 6, 10},
		{"splice one in between", func(b *book) {
			b.entries = slices.Insert(b.entries, 6, newBook(b.t, stranger, "other", 7, 99).entries[6])
		}, 8, 8},
		{"splice one in, number and hash anew", func(b *book) {
			b.entries = slices.Insert(b.entries, 6, newBook(b.t, stranger, "other", 7, 99).entries[6])
			b.number(7).rehash()
		}, 6, 10},
		{"replay", func(b *book) { b.entries = append(b.entries, b.entries[4]) }, 21, 21},
		{"replay within", func(b *book) { b.entries = slices.Insert(b.entries, 8, b.entries[4]) }, 9, 9},
		{"replay an older checkpoint", func(b *book) { b.signed[15] = b.signed[10] }, 16, 16},
		{"fork", func(b *book) { *b = *newBook(b.t, stranger, "other", 20, 5) }, 1, 20},
		{"fork from the tenth on", func(b *book) {
			b.entries = append(b.entries[:10:10], newBook(b.t, stranger, "other", 20, 99).entries[10:]...)
		}, 11, 15},
		{"change a checkpoint", func(b *book) { b.signed[10] = strings.Replace(b.signed[10], "\n10\n", "\n11\n", 1) }, 6, 10},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBook(t, signer, "r", 20, 5)
			anchor, signed, err := OpenCheckpoint(b.signed[20], key)
			if err != nil || !signed {
				t.Fatalf("the anchor: %v, signed %t", err, signed)
			}
			if got, err := VerifyExport(bytes.NewReader(b.export()), []Checkpoint{anchor}, key); err != nil || got.Confirmed != 20 || got.Checkpoints != 4 {
				t.Fatalf("untouched: %+v, %v", got, err)
			}
			test.attack(b)
			_, err = VerifyExport(bytes.NewReader(b.export()), []Checkpoint{anchor}, key)
			var found *Finding
			if !errors.As(err, &found) {
				t.Fatalf("not found: %v", err)
			}
			if found.First != test.first || found.Last != test.last {
				t.Errorf("found %v, want at %d to %d", found, test.first, test.last)
			}
			// Without the key there is the anchor alone, which is enough to see that something is wrong.
			if _, err := VerifyExport(bytes.NewReader(b.export()), []Checkpoint{anchor}); err == nil && !strings.Contains(test.name, "checkpoint") {
				t.Error("the anchor alone does not show it")
			}
		})
	}
}

// TestUnanchoredTailCanBeCut is what no checkpoint shows: records that none of
// those at hand knows of.
func TestUnanchoredTailCanBeCut(t *testing.T) {
	t.Parallel()
	signer, key := keyPair(t, "aurea.audit/test")
	b := newBook(t, signer, "r", 19, 5)
	b.entries = b.entries[:16]
	got, err := VerifyExport(bytes.NewReader(b.export()), nil, key)
	if err != nil || got.Records != 16 || got.Confirmed != 15 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestPurgedLogVerifies(t *testing.T) {
	t.Parallel()
	signer, key := keyPair(t, "aurea.audit/test")
	b := newBook(t, signer, "r", 9, 99)
	purge := Record{Category: Config, Action: PurgeAction, After: []byte(`{"through":4}`)}
	if err := purge.Seal(10, time.Unix(10, 0)); err != nil {
		t.Fatal(err)
	}
	b.entries = append(b.entries, Entry{Seq: 10, Leaf: purge.Leaf(), Record: &purge})
	for i := range 4 {
		b.entries[i].Record = nil
	}
	if got, err := VerifyExport(bytes.NewReader(b.export()), nil, key); err != nil || got.Purged != 4 || got.Records != 6 {
		t.Errorf("got %+v, %v", got, err)
	}
	b.entries[4].Record = nil
	var found *Finding
	if _, err := VerifyExport(bytes.NewReader(b.export()), nil, key); !errors.As(err, &found) || found.First != 5 || found.Last != 5 {
		t.Errorf("one more than was purged: %v", err)
	}
}

func TestCheckpoints(t *testing.T) {
	t.Parallel()
	signer, key := keyPair(t, "aurea.audit/a")
	other, _ := keyPair(t, "aurea.audit/a")
	c := Checkpoint{Origin: "aurea.audit/a", Size: 3, Root: tlog.Hash{1}}
	text, err := c.Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	if got, signed, err := OpenCheckpoint(text, key); got != c || !signed || err != nil {
		t.Errorf("got %v, %t, %v", got, signed, err)
	}
	if got, signed, err := OpenCheckpoint(text); got != c || signed || err != nil {
		t.Errorf("without a key: %v, %t, %v", got, signed, err)
	}
	foreign, err := c.Sign(other)
	if err != nil {
		t.Fatal(err)
	}
	if _, signed, _ := OpenCheckpoint(foreign, key); signed {
		t.Error("a stranger's signature was taken")
	}
	for _, bad := range []string{"", "x", text[1:], strings.Replace(text, "\n3\n", "\n03\n", 1), strings.Replace(text, "\n3\n", "\n4\n", 1), strings.Repeat("x", MaxCheckpoint+1)} {
		if _, _, err := OpenCheckpoint(bad, key); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func FuzzVerifyExport(f *testing.F) {
	signer, key := keyPair(f, "aurea.audit/fuzz")
	good := newBook(f, signer, "r", 4, 2).export()
	f.Add(good)
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := VerifyExport(bytes.NewReader(b), nil, key)
		if err == nil && got.Confirmed > 4 {
			t.Errorf("confirmed %d records of 4", got.Confirmed)
		}
	})
}
