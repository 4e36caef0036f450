// Package blobtest is the suite that every blob.Store passes: a check for each
// sentence of its contract. Tests of adapters call Run.
package blobtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/fault"
)

// Place is where blobs lie, empty at first.
type Place struct {
	// Open opens it, also a second time while it is open, as another manager
	// would where that is allowed.
	Open func(t *testing.T) blob.Store
	// Age makes a blob one that was last wanted so long ago.
	Age func(t *testing.T, digest string, ago time.Duration)
	// Part is a size around which the store changes how it keeps a blob.
	Part int
}

// Run runs every check, each in a place of its own.
func Run(t *testing.T, place func(t *testing.T) Place) {
	for _, check := range []struct {
		name string
		run  func(*testing.T, Place)
	}{
		{"what is put comes back, for all who open it", testComesBack},
		{"what does not match is refused, and nothing is there", testRefuses},
		{"a digest is never a path", testNoPaths},
		{"the empty blob is always there", testEmpty},
		{"what is there is not read again", testFree},
		{"many bring the same", testMany},
		{"only what nobody wants is removed", testRemove},
		{"a walk sees all, and ends when told", testWalk},
		{"a call ends with its context", testContext},
	} {
		t.Run(check.name, func(t *testing.T) {
			t.Parallel()
			check.run(t, place(t))
		})
	}
}

func random(t *testing.T, n int) []byte {
	t.Helper()
	p := make([]byte, n)
	if _, err := rand.Read(p); err != nil {
		t.Fatal(err)
	}
	return p
}

func put(t *testing.T, s blob.Store, p []byte) string {
	t.Helper()
	digest := blob.Digest(p)
	if err := s.Put(t.Context(), digest, int64(len(p)), bytes.NewReader(p)); err != nil {
		t.Fatal(err)
	}
	return digest
}

func wantThere(t *testing.T, s blob.Store, digest string, want bool) {
	t.Helper()
	if there, err := s.Has(t.Context(), digest); err != nil || there != want {
		t.Errorf("Has says %v, %v; want %v", there, err, want)
	}
}

func testComesBack(t *testing.T, p Place) {
	here, there := p.Open(t), p.Open(t)
	for _, size := range []int{0, 1, p.Part - 1, p.Part, p.Part + 1, 2*p.Part + 5} {
		data := random(t, size)
		digest := put(t, here, data)
		b, n, err := there.Open(t.Context(), digest)
		if err != nil || n != int64(size) {
			t.Fatalf("open %d bytes: got %d, %v", size, n, err)
		}
		got, err := io.ReadAll(b)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes came back as %d, %v", size, len(got), err)
		}
		checkParts(t, b, data)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		wantThere(t, there, digest, true)
	}
}

// checkParts reads here and there.
func checkParts(t *testing.T, b blob.Blob, data []byte) {
	t.Helper()
	size := len(data)
	for _, at := range []int{0, size / 2, size - 1, size, size + 3} {
		if at < 0 {
			continue
		}
		want := data[min(at, size):min(at+7, size)]
		part := make([]byte, 7)
		n, err := b.ReadAt(part, int64(at))
		if !bytes.Equal(part[:n], want) || n < len(part) && !errors.Is(err, io.EOF) || n == len(part) && err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("ReadAt(%d) of %d: %d bytes, %v", at, size, n, err)
		}
		if at == 0 {
			continue // it was read from there before
		}
		if got, err := b.Seek(int64(at), io.SeekStart); err != nil || got != int64(at) {
			t.Errorf("Seek(%d): %d, %v", at, got, err)
		}
		rest, err := io.ReadAll(b)
		if err != nil || !bytes.Equal(rest, data[min(at, size):]) {
			t.Errorf("from %d of %d on: %d bytes, %v", at, size, len(rest), err)
		}
	}
	if end, err := b.Seek(0, io.SeekEnd); err != nil || end != int64(size) {
		t.Errorf("the end is at %d of %d, %v", end, size, err)
	}
}

// broken is a reader that fails.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

func testRefuses(t *testing.T, p Place) {
	s := p.Open(t)
	for _, size := range []int{5, p.Part, 2*p.Part + 5} {
		data := random(t, size)
		other := bytes.Clone(data)
		other[size-1]++
		digest := blob.Digest(data)
		for what, r := range map[string]io.Reader{
			"other bytes": bytes.NewReader(other),
			"too few":     bytes.NewReader(data[:size-1]),
			"too many":    io.MultiReader(bytes.NewReader(data), strings.NewReader("x")),
			"none":        strings.NewReader(""),
		} {
			if err := s.Put(t.Context(), digest, int64(size), r); !fault.Is(err, fault.Invalid) {
				t.Errorf("%s of %d: got %v, want an invalid fault", what, size, err)
			}
			wantThere(t, s, digest, false)
		}
		cut := errors.New("cut")
		if err := s.Put(t.Context(), digest, int64(size), io.MultiReader(bytes.NewReader(data[:size/2]), broken{cut})); !errors.Is(err, cut) {
			t.Errorf("a reader that broke: got %v", err)
		}
		wantThere(t, s, digest, false)
		put(t, s, data)
		wantThere(t, s, digest, true)
	}
	for _, size := range []int64{-1, math.MinInt64, math.MaxInt64} {
		if err := s.Put(t.Context(), blob.Digest([]byte("x")), size, strings.NewReader("x")); !fault.Is(err, fault.Invalid) {
			t.Errorf("size %d: got %v, want an invalid fault", size, err)
		}
	}
}

func testNoPaths(t *testing.T, p Place) {
	s := p.Open(t)
	for _, digest := range []string{"", "..", "../../etc/passwd", strings.Repeat("A", 64), strings.Repeat("g", 64), blob.Empty + "/", strings.Repeat("../", 21) + "a"} {
		if _, _, err := s.Open(t.Context(), digest); !fault.Is(err, fault.Invalid) {
			t.Errorf("Open(%q) = %v, want an invalid fault", digest, err)
		}
		if _, err := s.Has(t.Context(), digest); !fault.Is(err, fault.Invalid) {
			t.Errorf("Has(%q) = %v, want an invalid fault", digest, err)
		}
		if err := s.Put(t.Context(), digest, 0, strings.NewReader("")); !fault.Is(err, fault.Invalid) {
			t.Errorf("Put(%q) = %v, want an invalid fault", digest, err)
		}
		if _, err := s.Remove(t.Context(), digest, time.Now()); !fault.Is(err, fault.Invalid) {
			t.Errorf("Remove(%q) = %v, want an invalid fault", digest, err)
		}
	}
	if _, _, err := s.Open(t.Context(), blob.Digest([]byte("absent"))); !fault.Is(err, fault.NotFound) {
		t.Errorf("Open of an absent blob = %v, want not found", err)
	}
}

func testEmpty(t *testing.T, p Place) {
	s := p.Open(t)
	wantThere(t, s, blob.Empty, true)
	b, size, err := s.Open(t.Context(), blob.Empty)
	if err != nil || size != 0 {
		t.Fatal(size, err)
	}
	if got, err := io.ReadAll(b); len(got) != 0 || err != nil {
		t.Error(got, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if gone, err := s.Remove(t.Context(), blob.Empty, time.Now().Add(time.Hour)); gone || err != nil {
		t.Error(gone, err)
	}
}

func testFree(t *testing.T, p Place) {
	s := p.Open(t)
	data := []byte("there")
	digest := put(t, s, data)
	if err := p.Open(t).Put(t.Context(), digest, int64(len(data)), broken{errors.New("it was read")}); err != nil {
		t.Error(err)
	}
}

func testMany(t *testing.T, p Place) {
	one, other := p.Open(t), p.Open(t)
	data := random(t, p.Part+7)
	digest := blob.Digest(data)
	var all sync.WaitGroup
	for range 4 {
		for _, s := range []blob.Store{one, other} {
			all.Go(func() {
				if err := s.Put(t.Context(), digest, int64(len(data)), bytes.NewReader(data)); err != nil {
					t.Error(err)
				}
				wantThere(t, s, digest, true)
			})
		}
	}
	all.Wait()
}

func testRemove(t *testing.T, p Place) {
	s, ctx := p.Open(t), t.Context()
	aged := func(text string, ago time.Duration) string {
		digest := put(t, s, []byte(text))
		p.Age(t, digest, ago)
		return digest
	}
	old, fresh, asked, again := aged("old", 5*time.Hour), aged("fresh", time.Minute), aged("asked", 5*time.Hour), aged("again", 5*time.Hour)
	wantThere(t, s, asked, true)
	put(t, s, []byte("again"))
	open, _, err := s.Open(ctx, old)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(open, make([]byte, 1)); err != nil { // it is being read
		t.Fatal(err)
	}
	p.Age(t, old, 5*time.Hour) // some count who opens a blob as one who wants it
	since := time.Now().Add(-time.Hour)
	for digest, want := range map[string]bool{old: true, fresh: false, asked: false, again: false, blob.Digest([]byte("none")): false} {
		if got, err := s.Remove(ctx, digest, since); got != want || err != nil {
			t.Errorf("%s: %v, %v", digest, got, err)
		}
		wantThere(t, s, digest, digest == fresh || digest == asked || digest == again)
	}
	if text, err := io.ReadAll(open); err != nil || string(text) != "ld" {
		t.Errorf("who reads it gets %q, %v", text, err)
	}
	_ = open.Close()
	put(t, s, []byte("old"))
	wantThere(t, s, old, true)
	if gone, err := s.Remove(ctx, old, since); gone || err != nil {
		t.Errorf("one that came back is removed: %v, %v", gone, err)
	}
	if gone, err := s.Remove(ctx, old, time.Now().Add(time.Hour)); !gone || err != nil {
		t.Errorf("what nobody wants from an hour ahead on stays: %v, %v", gone, err)
	}
	if _, _, err := s.Open(ctx, old); !fault.Is(err, fault.NotFound) {
		t.Errorf("what was removed opens: %v", err)
	}
}

func testWalk(t *testing.T, p Place) {
	s := p.Open(t)
	want := map[string]int64{}
	for i := range 20 {
		data := random(t, 10+i)
		want[put(t, s, data)] = int64(len(data))
	}
	for digest := range want {
		p.Age(t, digest, 3*time.Hour)
		wantThere(t, s, digest, true)
		break
	}
	got := map[string]int64{}
	err := s.Walk(t.Context(), func(b blob.Info) error {
		if ago := time.Since(b.Wanted); ago > 2*time.Minute || ago < -2*time.Minute {
			t.Errorf("a blob that was just wanted was so %s ago", ago)
		}
		got[b.Digest] += b.Bytes
		return nil
	})
	if err != nil || len(got) != len(want) {
		t.Fatalf("got %d blobs, want %d, %v", len(got), len(want), err)
	}
	for digest, size := range want {
		if got[digest] != size {
			t.Errorf("%s has %d bytes, want %d", digest, got[digest], size)
		}
	}
	enough := errors.New("enough")
	seen := 0
	if err := s.Walk(t.Context(), func(blob.Info) error { seen++; return enough }); !errors.Is(err, enough) || seen != 1 {
		t.Errorf("after %d: %v", seen, err)
	}
}

func testContext(t *testing.T, p Place) {
	s := p.Open(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("hung up"))
	data := random(t, p.Part+1)
	if err := s.Put(ctx, blob.Digest(data), int64(len(data)), bytes.NewReader(data)); err == nil {
		t.Error("a Put that was hung up on went on")
	}
	wantThere(t, s, blob.Digest(data), false)
}
