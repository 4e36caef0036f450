package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/fault"
)

func open(t *testing.T, folder string) *blob.Local {
	t.Helper()
	s, err := blob.OpenLocal(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestPutThenOpenGivesTheBytesAlsoAfterReopen(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	data := []byte("evidence")
	s := open(t, folder)
	for range 2 { // storing twice is a success
		if err := s.Put(t.Context(), blob.Digest(data), int64(len(data)), bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
	}
	f, size, err := open(t, folder).Open(t.Context(), blob.Digest(data))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil || !bytes.Equal(got, data) || size != int64(len(data)) {
		t.Fatalf("got %q of size %d, %v", got, size, err)
	}
}

func TestPutRefusesWhatDoesNotMatchAndStoresNothing(t *testing.T) {
	t.Parallel()
	digest := blob.Digest([]byte("right"))
	for name, put := range map[string]struct {
		size int64
		data string
	}{
		"other bytes": {5, "wrong"},
		"too short":   {9, "right"},
		"too long":    {5, "right and more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, t.TempDir())
			err := s.Put(t.Context(), digest, put.size, strings.NewReader(put.data))
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("got %v, want an invalid fault", err)
			}
			if there, _ := s.Has(t.Context(), digest); there {
				t.Fatal("a refused blob is there")
			}
		})
	}
}

func TestTheEmptyBlobIsAlwaysThere(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	if blob.Digest(nil) != blob.Empty {
		t.Fatal("Empty is not the digest of nothing")
	}
	f, size, err := s.Open(t.Context(), blob.Empty)
	if err != nil || size != 0 {
		t.Fatal(size, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestDigestsFromOutsideAreNeverPaths(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	for _, digest := range []string{"", "..", "../../etc/passwd", strings.Repeat("A", 64), strings.Repeat("g", 64), blob.Empty + "/", strings.Repeat("../", 21) + "a"} {
		if _, _, err := s.Open(t.Context(), digest); !fault.Is(err, fault.Invalid) {
			t.Errorf("Open(%q) = %v, want an invalid fault", digest, err)
		}
		if err := s.Put(t.Context(), digest, 0, strings.NewReader("")); !fault.Is(err, fault.Invalid) {
			t.Errorf("Put(%q) = %v, want an invalid fault", digest, err)
		}
	}
	if _, _, err := s.Open(t.Context(), blob.Digest([]byte("absent"))); !fault.Is(err, fault.NotFound) {
		t.Errorf("Open of an absent blob = %v, want not found", err)
	}
}

func TestManyBringTheSameBlob(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	data := []byte("the same for all")
	digest := blob.Digest(data)
	first, wait := make(chan struct{}), make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		// It fails after the others have begun to wait for it.
		err := s.Put(t.Context(), digest, int64(len(data)), readerFunc(func([]byte) (int, error) {
			close(first)
			<-wait
			return 0, io.ErrUnexpectedEOF
		}))
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got error %v, want that of the reader", err)
		}
	})
	<-first
	for range 8 {
		group.Go(func() {
			if err := s.Put(t.Context(), digest, int64(len(data)), bytes.NewReader(data)); err != nil {
				t.Error(err)
			}
			if there, err := s.Has(t.Context(), digest); !there || err != nil {
				t.Errorf("after its Put the blob is there: %v, %v", there, err)
			}
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("hung up"))
	if err := s.Put(ctx, digest, int64(len(data)), bytes.NewReader(data)); err == nil || err.Error() != "hung up" {
		t.Errorf("got error %v, want the cause of the end", err)
	}
	if _, err := s.Has(ctx, digest); err == nil || err.Error() != "hung up" {
		t.Errorf("got error %v, want the cause of the end", err)
	}
	close(wait)
	group.Wait()
}

func TestSizesThatCannotBe(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	for _, size := range []int64{-1, math.MinInt64, math.MaxInt64} {
		if err := s.Put(t.Context(), blob.Digest([]byte("x")), size, strings.NewReader("x")); !fault.Is(err, fault.Invalid) {
			t.Errorf("size %d: got %v, want an invalid fault", size, err)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestRemoveLeavesWhatIsWanted(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	s, ctx := open(t, folder), t.Context()
	put := func(text string, ago time.Duration) string {
		digest := blob.Digest([]byte(text))
		if err := s.Put(ctx, digest, int64(len(text)), strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-ago)
		if err := os.Chtimes(filepath.Join(folder, digest[:2], digest[2:]), at, at); err != nil {
			t.Fatal(err)
		}
		return digest
	}
	old, fresh, asked, again := put("old", 5*time.Hour), put("fresh", time.Minute), put("asked", 5*time.Hour), put("again", 5*time.Hour)
	if there, err := s.Has(ctx, asked); !there || err != nil {
		t.Fatal(there, err)
	}
	if err := s.Put(ctx, again, 5, strings.NewReader("again")); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int64{}
	if err := s.Walk(ctx, func(b blob.Info) error { seen[b.Digest] = b.Bytes; return nil }); err != nil || len(seen) != 4 || seen[old] != 3 {
		t.Fatal(seen, err)
	}
	open, _, err := s.Open(ctx, old)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	since := time.Now().Add(-time.Hour)
	for digest, want := range map[string]bool{old: true, fresh: false, asked: false, again: false, blob.Digest([]byte("none")): false, blob.Empty: false} {
		if got, err := s.Remove(ctx, digest, since); got != want || err != nil {
			t.Errorf("%s: %v, %v", digest, got, err)
		}
	}
	if there, err := s.Has(ctx, old); there || err != nil {
		t.Fatal(there, err)
	}
	if text, err := io.ReadAll(open); string(text) != "old" {
		t.Fatal("who reads it is cut off", err)
	}
	if _, err := s.Remove(ctx, "../../etc/passwd", since); !fault.Is(err, fault.Invalid) {
		t.Fatal(err)
	}
	stop := errors.New("enough")
	if err := s.Walk(ctx, func(blob.Info) error { return stop }); !errors.Is(err, stop) {
		t.Fatal(err)
	}
}
