package postgres_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
)

func randomBytes(t *testing.T, n int) []byte {
	t.Helper()
	p := make([]byte, n)
	if _, err := rand.Read(p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestBlobsComeBackAtEveryManager(t *testing.T) {
	t.Parallel()
	ctx, address := t.Context(), fresh(t)
	here, there := open(t, address).Blobs(), open(t, address).Blobs()
	for _, size := range []int{0, 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3<<20 + 5} {
		p := randomBytes(t, size)
		digest := blob.Digest(p)
		for range 2 { // the second is free
			if err := here.Put(ctx, digest, int64(size), bytes.NewReader(p)); err != nil {
				t.Fatal(err)
			}
		}
		b, n, err := there.Open(ctx, digest)
		if err != nil || n != int64(size) {
			t.Fatalf("open %d bytes: got %d, %v", size, n, err)
		}
		got, err := io.ReadAll(b)
		if err != nil || !bytes.Equal(got, p) {
			t.Errorf("%d bytes came back as %d others, %v", size, len(got), err)
		}
		if size > 2<<20 {
			part := make([]byte, 10)
			if _, err := b.ReadAt(part, 1<<20-5); err != nil || !bytes.Equal(part, p[1<<20-5:1<<20+5]) {
				t.Errorf("across two parts: %v", err)
			}
		}
	}
}

func TestBlobsThatAreNone(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), open(t, fresh(t)).Blobs()
	p := []byte("bytes")
	broken := errors.New("broken")
	for what, put := range map[string]func() error{
		"other bytes": func() error { return s.Put(ctx, blob.Digest(p), 5, strings.NewReader("other")) },
		"too few":     func() error { return s.Put(ctx, blob.Digest(p), 5, strings.NewReader("byte")) },
		"too many":    func() error { return s.Put(ctx, blob.Digest(p), 5, strings.NewReader("bytes and more")) },
		"no size":     func() error { return s.Put(ctx, blob.Digest(p), -1, bytes.NewReader(p)) },
		"a path":      func() error { return s.Put(ctx, "../../etc/passwd", 5, bytes.NewReader(p)) },
	} {
		if err := put(); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	half := io.MultiReader(bytes.NewReader(randomBytes(t, 2<<20)), iotestErr{broken})
	if err := s.Put(ctx, blob.Digest(p), 3<<20, half); !errors.Is(err, broken) {
		t.Errorf("a reader that broke: got %v", err)
	}
	if has, err := s.Has(ctx, blob.Digest(p)); err != nil || has {
		t.Errorf("something is there: %v, %v", has, err)
	}
	if _, _, err := s.Open(ctx, blob.Digest(p)); !fault.Is(err, fault.NotFound) {
		t.Errorf("open what is not there: %v", err)
	}
	if err := s.Put(ctx, blob.Digest(p), 5, bytes.NewReader(p)); err != nil {
		t.Errorf("the right bytes after the wrong ones: %v", err)
	}
}

type iotestErr struct{ err error }

func (r iotestErr) Read([]byte) (int, error) { return 0, r.err }

func TestManyBringTheSameBlob(t *testing.T) {
	t.Parallel()
	ctx, address := t.Context(), fresh(t)
	one, other := open(t, address).Blobs(), open(t, address).Blobs()
	p := randomBytes(t, 2<<20)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := errors.Join(one.Put(ctx, blob.Digest(p), int64(len(p)), bytes.NewReader(p)),
				other.Put(ctx, blob.Digest(p), int64(len(p)), bytes.NewReader(p))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestBlobsAreWalkedAndRemoved(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), open(t, fresh(t)).Blobs()
	for i := range 5 {
		p := fmt.Append(nil, "blob ", i)
		if err := s.Put(ctx, blob.Digest(p), int64(len(p)), bytes.NewReader(p)); err != nil {
			t.Fatal(err)
		}
	}
	first := blob.Digest([]byte("blob 0"))
	if gone, err := s.Remove(ctx, first, time.Now().Add(-time.Hour)); err != nil || gone {
		t.Errorf("one that is wanted was removed: %v, %v", gone, err)
	}
	if gone, err := s.Remove(ctx, first, time.Now().Add(time.Hour)); err != nil || !gone {
		t.Errorf("one that nobody wants was not removed: %v, %v", gone, err)
	}
	seen := 0
	if err := s.Walk(ctx, func(b blob.Info) error { seen++; return nil }); err != nil || seen != 4 {
		t.Errorf("got %d blobs, want 4, %v", seen, err)
	}
	if has, err := s.Has(ctx, first); err != nil || has {
		t.Errorf("it is there: %v, %v", has, err)
	}
}

// What one manager takes the other reads, in order and once, whatever comes
// twice; it goes when its lease has ended.
func TestLiveOutputIsEverybodys(t *testing.T) {
	t.Parallel()
	ctx, address := t.Context(), fresh(t)
	db, far := open(t, address), open(t, address)
	here, there := db.Outputs(), far.Outputs()
	woken := there.Watch(ctx)
	j := &job.Job{ID: job.NewID(), State: job.InProgress, Fence: 3}
	if err := db.Update(ctx, func(tx store.Tx) error { return tx.Jobs().Add(ctx, j) }); err != nil {
		t.Fatal(err)
	}
	for _, piece := range []struct {
		at   int64
		text string
	}{{0, "hello"}, {0, "hello"}, {5, " wor"}, {3, "lo world"}, {100, "behind a gap"}} {
		if err := here.Take(ctx, j.ID, 3, 1, piece.at, []byte(piece.text)); err != nil {
			t.Fatal(err)
		}
	}
	<-woken
	for offset, want := range map[int64]string{0: "hello world", 4: "o world", 11: "", 50: ""} {
		got, err := there.Read(ctx, j.ID, 3, 1, offset, 100)
		if err != nil || string(got) != want {
			t.Errorf("from %d: got %q, want %q, %v", offset, got, want, err)
		}
	}
	if got, err := there.Read(ctx, j.ID, 3, 1, 0, 4); err != nil || string(got) != "hell" {
		t.Errorf("at most four: got %q, %v", got, err)
	}
	here.Drop(ctx, j.ID, 3) // it runs: nothing goes
	if got, _ := there.Read(ctx, j.ID, 3, 1, 0, 100); len(got) == 0 {
		t.Error("the output of a running job is gone")
	}
	j.State = job.Completed
	if err := db.Update(ctx, func(tx store.Tx) error { return tx.Jobs().Put(ctx, j) }); err != nil {
		t.Fatal(err)
	}
	there.Drop(ctx, j.ID, 3)
	if got, err := there.Read(ctx, j.ID, 3, 1, 0, 100); err != nil || len(got) != 0 {
		t.Errorf("the output of an ended job is there: %q, %v", got, err)
	}
}
