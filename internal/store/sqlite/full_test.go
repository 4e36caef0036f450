package sqlite_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store"
)

// smallDisk mounts a file system of so many bytes, which needs root.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		const reason = "making a disk that is soon full needs root"
		if os.Getenv("CI") == "true" {
			t.Fatal(reason)
		}
		t.Skip(reason)
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all that is left of the disk.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 4096); ; {
		if _, err := f.Write(chunk); errors.Is(err, syscall.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullDisk finds after a full disk exactly what was acknowledged: no event
// is lost, none is there whose writer was told that it failed, and no blob is
// there in part.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "4m")
	path, filler := filepath.Join(dir, "aurea.db"), filepath.Join(dir, "filler")
	s := openFile(t, path)
	blobs, err := blob.OpenLocal(filepath.Join(dir, "blob"))
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	var acknowledged []int64
	write := func() error {
		seq, err := appendEvent(t.Context(), s)
		if err == nil {
			acknowledged = append(acknowledged, seq)
		}
		return err
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	fill(t, filler)
	const many = 100_000
	var refused error
	for n := 0; refused == nil; n++ {
		if n > many {
			t.Fatal("the disk was never full")
		}
		refused = write()
	}
	if !fault.Is(refused, fault.Unavailable) || fault.CodeOf(refused) != "disk_full" {
		t.Errorf("%v is no way to say that the disk is full", refused)
	}
	data := bytes.Repeat([]byte("x"), 1<<20)
	if err := blobs.Put(t.Context(), blob.Digest(data), int64(len(data)), bytes.NewReader(data)); err == nil {
		t.Error("a blob was stored on a full disk")
	}
	if _, _, err := blobs.Open(t.Context(), blob.Digest(data)); !fault.Is(err, fault.NotFound) {
		t.Errorf("a blob is there in part: %v", err)
	}
	checkEvents(t, s, acknowledged)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Errorf("write after there is room again: %v", err)
	}
	if err := blobs.Put(t.Context(), blob.Digest(data), int64(len(data)), bytes.NewReader(data)); err != nil {
		t.Errorf("store a blob after there is room again: %v", err)
	}
	checkEvents(t, s, acknowledged)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openFile(t, path)
	defer s.Close()
	checkEvents(t, s, acknowledged)
}

// checkEvents demands these events and no others.
func checkEvents(t *testing.T, s store.Store, want []int64) {
	t.Helper()
	var list []event.Event
	err := s.View(t.Context(), func(tx store.Tx) (err error) {
		list, err = tx.Events().List(t.Context(), event.Filter{}, 1e6)
		return err
	})
	if err != nil || len(list) != len(want) {
		t.Fatalf("%d events, want %d: %v", len(list), len(want), err)
	}
	for i, e := range list {
		if e.Seq != want[i] {
			t.Fatalf("event %d is number %d, want %d", i, e.Seq, want[i])
		}
	}
}
