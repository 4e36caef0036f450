package filesync

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/file"
	"github.com/aurea-dev/aurea/internal/store"
)

// Limits bound what a session keeps. Zero fields are the defaults.
type Limits struct {
	Bytes     int64 // of all files of a session, with their older versions
	FileBytes int64 // of one file
	Files     int   // of a session, the deleted ones that are remembered included
}

func (l Limits) orDefault() Limits {
	if l.Bytes <= 0 {
		l.Bytes = 100 << 20
	}
	if l.FileBytes <= 0 {
		l.FileBytes = 10 << 20
	}
	if l.Files <= 0 {
		l.Files = 10_000
	}
	return l
}

// Shelf is the stored files of sessions: rows, and bytes as blobs.
//
// The quota bounds what a session keeps, older versions included: those are
// dropped, the oldest first, before a file is refused.
type Shelf struct {
	store  store.Store
	blobs  blob.Store
	limits Limits
	now    func() time.Time
}

// Limits are those that hold.
func (s *Shelf) Limits() Limits { return s.limits }

// NewShelf makes one.
func NewShelf(s store.Store, blobs blob.Store, limits Limits) *Shelf {
	return &Shelf{store: s, blobs: blobs, limits: limits.orDefault(), now: time.Now}
}

// pageRows is how many rows are asked for at a time.
const pageRows = 1000

// heads returns the newest version of every path, the deleted ones included.
func (s *Shelf) heads(ctx context.Context, session string) (map[string]file.File, error) {
	all := map[string]file.File{}
	for after := ""; ; {
		var page []file.File
		err := s.store.View(ctx, func(tx store.Tx) (err error) {
			page, err = tx.Files().List(ctx, session, after, pageRows)
			return err
		})
		if err != nil || len(page) == 0 {
			return all, err
		}
		for _, f := range page {
			all[f.Path] = f
		}
		after = page[len(page)-1].Path
	}
}

// List returns files behind a path, in order, without those that were deleted.
func (s *Shelf) List(ctx context.Context, session, after string, limit int) (list []file.File, err error) {
	if err := file.CheckSession(session); err != nil {
		return nil, err
	}
	if limit < 1 || limit > pageRows {
		limit = pageRows
	}
	for len(list) < limit {
		var page []file.File
		err := s.store.View(ctx, func(tx store.Tx) (err error) {
			page, err = tx.Files().List(ctx, session, after, limit)
			return err
		})
		if err != nil || len(page) == 0 {
			return list, err
		}
		for _, f := range page {
			if after = f.Path; !f.Deleted && len(list) < limit {
				list = append(list, f)
			}
		}
	}
	return list, nil
}

// Get returns a file, or a fault of kind NotFound. Version 0 is the newest.
func (s *Shelf) Get(ctx context.Context, session, path string, version int64) (file.File, error) {
	if err := checkNames(session, path); err != nil {
		return file.File{}, err
	}
	var found file.File
	var there bool
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		if version == 0 {
			found, there, err = tx.Files().Get(ctx, session, path)
			return err
		}
		list, err := tx.Files().Versions(ctx, session, path, pageRows)
		for _, f := range list {
			if f.Version == version {
				found, there = f, true
			}
		}
		return err
	})
	if err == nil && (!there || found.Deleted) {
		err = fault.New(fault.NotFound, "the session has no such file").WithCode("no_file")
	}
	return found, err
}

// Open returns the bytes of a file.
func (s *Shelf) Open(ctx context.Context, f file.File) (blob.Blob, error) {
	b, _, err := s.blobs.Open(ctx, f.SHA256)
	return b, err
}

// read returns the bytes of a file, checked.
func (s *Shelf) read(ctx context.Context, sha256 string) ([]byte, error) {
	b, size, err := s.blobs.Open(ctx, sha256)
	if err != nil {
		return nil, err
	}
	defer func() { _ = b.Close() }()
	if size > s.limits.FileBytes {
		return nil, tooLarge(s.limits.FileBytes)
	}
	data, err := io.ReadAll(b)
	if err == nil && blob.Digest(data) != sha256 {
		err = fault.New(fault.Internal, "the stored file is damaged").WithCode("file_damaged")
	}
	return data, err
}

// Put stores a file that somebody outside brings; the newest version must still
// be was, where that is not negative.
func (s *Shelf) Put(ctx context.Context, session, path string, mode uint32, was int64, body io.Reader) (file.File, error) {
	if err := checkNames(session, path); err != nil {
		return file.File{}, err
	}
	data, err := io.ReadAll(io.LimitReader(body, s.limits.FileBytes+1))
	if err != nil {
		return file.File{}, fmt.Errorf("read the file: %w", err)
	}
	if mode == 0 {
		mode = 0o644
	}
	f := file.File{Session: session, Path: path, Mode: mode & 0o777, Modified: s.now()}
	err = s.put(ctx, &f, was, data)
	return f, err
}

// Delete marks a file as deleted.
func (s *Shelf) Delete(ctx context.Context, session, path string, was int64) error {
	if _, err := s.Get(ctx, session, path, 0); err != nil {
		return err
	}
	return s.put(ctx, &file.File{Session: session, Path: path, Deleted: true, Modified: s.now()}, was, nil)
}

// put stores bytes, then makes the row the newest. The quota is asked before the
// bytes are stored, and again where nobody can come between.
func (s *Shelf) put(ctx context.Context, f *file.File, was int64, data []byte) error {
	return s.write(ctx, f, data, func(tx store.Tx) error {
		expect := was
		if was < 0 {
			now, _, err := tx.Files().Get(ctx, f.Session, f.Path)
			if err != nil {
				return err
			}
			expect = now.Version
		}
		return tx.Files().Put(ctx, f, expect)
	})
}

// keep stores a version that lost.
func (s *Shelf) keep(ctx context.Context, f *file.File, data []byte) error {
	f.Lost = true
	return s.write(ctx, f, data, func(tx store.Tx) error { return tx.Files().Keep(ctx, f) })
}

func (s *Shelf) write(ctx context.Context, f *file.File, data []byte, row func(store.Tx) error) error {
	if int64(len(data)) > s.limits.FileBytes {
		return tooLarge(s.limits.FileBytes)
	}
	f.Size, f.Stored = int64(len(data)), s.now()
	if !f.Deleted {
		f.SHA256 = blob.Digest(data)
		if err := s.store.View(ctx, func(tx store.Tx) error { _, err := s.room(ctx, tx, f); return err }); err != nil {
			return err
		}
		if err := s.blobs.Put(ctx, f.SHA256, f.Size, bytes.NewReader(data)); err != nil {
			return err
		}
	}
	return s.store.Update(ctx, func(tx store.Tx) error {
		over, err := s.room(ctx, tx, f)
		if err != nil {
			return err
		}
		if err := row(tx); err != nil {
			return err
		}
		return tx.Files().Trim(ctx, f.Session, over, int64(s.limits.Files))
	})
}

// room says how many bytes of older versions must go for a file, or that it does
// not fit.
func (s *Shelf) room(ctx context.Context, tx store.Tx, f *file.File) (over int64, err error) {
	if f.Deleted {
		return 0, nil
	}
	u, err := tx.Files().Usage(ctx, f.Session)
	if err != nil {
		return 0, err
	}
	now, there, err := tx.Files().Get(ctx, f.Session, f.Path)
	if err != nil {
		return 0, err
	}
	bytes := u.Bytes + f.Size
	if !f.Lost {
		bytes -= now.Size // it becomes an older version, which may go
	}
	switch {
	case bytes > s.limits.Bytes:
		return 0, fault.New(fault.Exhausted, "the session may keep %d bytes of files, and has %d", s.limits.Bytes, u.Bytes).WithCode("quota")
	case (!there || now.Deleted) && u.Files >= int64(s.limits.Files):
		return 0, fault.New(fault.Exhausted, "the session may keep %d files", s.limits.Files).WithCode("quota")
	}
	return max(0, u.Bytes+u.Older+f.Size-s.limits.Bytes), nil
}

// Versions returns those of a path, the newest first.
func (s *Shelf) Versions(ctx context.Context, session, path string, limit int) (list []file.File, err error) {
	if err := checkNames(session, path); err != nil {
		return nil, err
	}
	if limit < 1 || limit > pageRows {
		limit = pageRows
	}
	err = s.store.View(ctx, func(tx store.Tx) error {
		list, err = tx.Files().Versions(ctx, session, path, limit)
		return err
	})
	return list, err
}

// Diff shows how the lines of one version became those of another, as diff -u
// does. What is no text is a fault of kind Invalid.
func (s *Shelf) Diff(ctx context.Context, session, path string, from, to int64) (string, error) {
	var texts [2]string
	for i, version := range []int64{from, to} {
		f, err := s.Get(ctx, session, path, version)
		if err != nil {
			return "", err
		}
		data, err := s.read(ctx, f.SHA256)
		if err != nil {
			return "", err
		}
		if !isText(data) {
			return "", fault.New(fault.Invalid, "version %d is no text of at most %d bytes", f.Version, maxText).WithCode("not_text")
		}
		texts[i] = string(data)
	}
	return evidence.Unified(path, texts[0], texts[1]), nil
}

// maxText bounds what is compared line by line.
const maxText = 1 << 20

func isText(data []byte) bool {
	return len(data) <= maxText && utf8.Valid(data) && bytes.IndexByte(data, 0) < 0
}

// Usage adds up what a session keeps.
func (s *Shelf) Usage(ctx context.Context, session string) (u file.Usage, err error) {
	err = s.store.View(ctx, func(tx store.Tx) error {
		u, err = tx.Files().Usage(ctx, session)
		return err
	})
	return u, err
}

// Forget drops all files of a session. Their bytes go with the next sweep.
func (s *Shelf) Forget(ctx context.Context, session string) error {
	return s.store.Update(ctx, func(tx store.Tx) error { return tx.Files().Forget(ctx, session) })
}

func checkNames(session, path string) error {
	if err := file.CheckSession(session); err != nil {
		return err
	}
	return file.CheckPath(path)
}

// sides is the path under which a sandbox remembers with which session, and from
// which folder, it was last synced. No file can have it.
const sides = "/"

// synced returns what a sandbox and its session last had in common. That is
// forgotten when it was between others: a file that another session does not
// have is no file that was deleted.
func (s *Shelf) synced(ctx context.Context, sandboxID, between string) (map[string]file.Synced, error) {
	all := map[string]file.Synced{}
	for after := ""; ; {
		var page []file.Synced
		err := s.store.View(ctx, func(tx store.Tx) (err error) {
			page, err = tx.Synced().List(ctx, sandboxID, after, pageRows)
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		for _, one := range page {
			all[one.Path] = one
		}
		after = page[len(page)-1].Path
	}
	if all[sides].SHA256 == between {
		delete(all, sides)
		return all, nil
	}
	err := s.store.Update(ctx, func(tx store.Tx) error {
		if err := tx.Synced().Forget(ctx, sandboxID); err != nil {
			return err
		}
		return tx.Synced().Put(ctx, sandboxID, &file.Synced{Path: sides, SHA256: between, At: s.now()})
	})
	return map[string]file.Synced{}, err
}

// remember notes what both have in common now.
func (s *Shelf) remember(ctx context.Context, sandboxID string, put []file.Synced, drop []string) error {
	if len(put)+len(drop) == 0 {
		return nil
	}
	return s.store.Update(ctx, func(tx store.Tx) error {
		for i := range put {
			if err := tx.Synced().Put(ctx, sandboxID, &put[i]); err != nil {
				return err
			}
		}
		return tx.Synced().Drop(ctx, sandboxID, drop...)
	})
}
