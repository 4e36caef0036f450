package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/blob/blobtest"
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

func TestLocal(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T) blobtest.Place {
		folder := t.TempDir()
		s := open(t, folder)
		return blobtest.Place{
			Open: func(*testing.T) blob.Store { return s }, // one at a time has the folder
			Age: func(t *testing.T, digest string, ago time.Duration) {
				at := time.Now().Add(-ago)
				if err := os.Chtimes(filepath.Join(folder, digest[:2], digest[2:]), at, at); err != nil {
					t.Fatal(err)
				}
			},
			Part: 64 << 10,
		}
	})
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

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
