package sqlstore

import (
	"context"
	"fmt"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/file"
	"github.com/aurea-dev/aurea/internal/store"
)

const (
	fileColumns = `session, path, version, size, sha256, mode, modified_at, stored_at, deleted, origin, lost`
	fileSelect  = `SELECT ` + fileColumns + ` FROM file`
	fileNewest  = fileSelect + ` WHERE session = $1 AND path = $2 AND newest = 1`
	fileList    = fileSelect + ` WHERE session = $1 AND path > $2 AND newest = 1 ORDER BY path LIMIT $3`
	fileLast    = `SELECT version FROM file WHERE session = $1 AND path = $2 ORDER BY version DESC LIMIT 1`
	fileAll     = fileSelect + ` WHERE session = $1 AND path = $2 ORDER BY version DESC LIMIT $3`
	fileSame    = `SELECT version FROM file WHERE session = $1 AND path = $2 AND sha256 = $3 AND deleted = 0 LIMIT 1`
	fileOld     = `UPDATE file SET newest = 0 WHERE session = $1 AND path = $2 AND newest = 1`
	fileInsert  = `INSERT INTO file (` + fileColumns + `, newest) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`
	fileUsage   = `SELECT COUNT(*), COALESCE(SUM(CASE WHEN newest = 1 AND deleted = 0 THEN 1 ELSE 0 END), 0),
		COALESCE(SUM(CASE WHEN newest = 1 THEN 1 ELSE 0 END), 0),
		COALESCE(SUM(CASE WHEN newest = 1 THEN size ELSE 0 END), 0), COALESCE(SUM(CASE WHEN newest = 0 THEN size ELSE 0 END), 0)
		FROM file WHERE session = $1`
	fileOldest = fileSelect + ` WHERE session = $1 AND newest = 0 ORDER BY stored_at, path, version LIMIT 100`
	fileMarks  = fileSelect + ` WHERE session = $1 AND newest = 1 AND deleted = 1 ORDER BY stored_at, path LIMIT $2`
	fileDrop   = `DELETE FROM file WHERE session = $1 AND path = $2 AND version = $3`
	fileErase  = `DELETE FROM file WHERE session = $1 AND path = $2`
	fileForget = `DELETE FROM file WHERE session = $1`
	fileKept   = `SELECT DISTINCT sha256 FROM file WHERE sha256 > $1 ORDER BY sha256 LIMIT $2`

	syncedList   = `SELECT path, sha256, mode, size, modified_at, synced_at FROM file_synced WHERE sandbox = $1 AND path > $2 ORDER BY path LIMIT $3`
	syncedInsert = `INSERT INTO file_synced (sandbox, path, sha256, mode, size, modified_at, synced_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (sandbox, path) DO UPDATE SET sha256 = excluded.sha256, mode = excluded.mode, size = excluded.size,
		modified_at = excluded.modified_at, synced_at = excluded.synced_at`
	syncedDrop   = `DELETE FROM file_synced WHERE sandbox = $1 AND path = $2`
	syncedForget = `DELETE FROM file_synced WHERE sandbox = $1`
)

// Files implements store.Tx.
func (t *Tx) Files() store.Files { return files{t} }

// Synced implements store.Tx.
func (t *Tx) Synced() store.Synced { return synced{t} }

type files struct{ *Tx }

func (t files) Get(ctx context.Context, session, path string) (file.File, bool, error) {
	f, ok, err := one(ctx, t.Tx, scanFile, fileNewest, session, path)
	if err != nil {
		return file.File{}, false, fmt.Errorf("get a file: %w", err)
	}
	return f, ok, nil
}

func (t files) List(ctx context.Context, session, after string, limit int) ([]file.File, error) {
	list, err := all(ctx, t.Tx, scanFile, fileList, session, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	return list, nil
}

func (t files) Put(ctx context.Context, f *file.File, was int64) error {
	now, _, err := t.Get(ctx, f.Session, f.Path)
	if err != nil {
		return err
	}
	if now.Version != was {
		return fault.New(fault.Conflict, "somebody else changed %q meanwhile", f.Path).WithCode(store.CodeFileChanged)
	}
	if err := t.q.Write(ctx, fileOld, f.Session, f.Path); err != nil {
		return fmt.Errorf("put a file: %w", err)
	}
	return t.insert(ctx, f, true)
}

func (t files) Keep(ctx context.Context, f *file.File) error {
	version, there, err := one(ctx, t.Tx, scanNumber, fileSame, f.Session, f.Path, f.SHA256)
	if err != nil {
		return fmt.Errorf("keep a file: %w", err)
	}
	if there {
		f.Version = version
		return nil
	}
	return t.insert(ctx, f, false)
}

func (t files) insert(ctx context.Context, f *file.File, newest bool) error {
	last, _, err := one(ctx, t.Tx, scanNumber, fileLast, f.Session, f.Path)
	if err == nil {
		f.Version = last + 1
		err = t.q.Write(ctx, fileInsert, f.Session, f.Path, f.Version, f.Size, f.SHA256, int64(f.Mode), micros(f.Modified), micros(f.Stored),
			number(f.Deleted), f.Origin, number(f.Lost), number(newest))
	}
	if err != nil {
		return fmt.Errorf("put a file: %w", err)
	}
	return nil
}

func (t files) Versions(ctx context.Context, session, path string, limit int) ([]file.File, error) {
	list, err := all(ctx, t.Tx, scanFile, fileAll, session, path, limit)
	if err != nil {
		return nil, fmt.Errorf("list versions of a file: %w", err)
	}
	return list, nil
}

func (t files) Usage(ctx context.Context, session string) (file.Usage, error) {
	u, _, err := one(ctx, t.Tx, func(row Row) (u file.Usage, err error) {
		var rows int64
		err = row.Scan(&rows, &u.Files, &u.Paths, &u.Bytes, &u.Older)
		return u, err
	}, fileUsage, session)
	if err != nil {
		return file.Usage{}, fmt.Errorf("add up files: %w", err)
	}
	return u, nil
}

func (t files) Trim(ctx context.Context, session string, bytes, paths int64) error {
	for bytes > 0 {
		old, err := all(ctx, t.Tx, scanFile, fileOldest, session)
		if err != nil {
			return fmt.Errorf("trim files: %w", err)
		}
		if len(old) == 0 {
			break
		}
		for _, f := range old {
			if bytes <= 0 {
				break
			}
			if _, err := t.q.Exec(ctx, fileDrop, session, f.Path, f.Version); err != nil {
				return fmt.Errorf("trim files: %w", err)
			}
			bytes -= f.Size
		}
	}
	u, err := t.Usage(ctx, session)
	if err != nil || u.Paths <= paths {
		return err
	}
	marks, err := all(ctx, t.Tx, scanFile, fileMarks, session, u.Paths-paths)
	for _, f := range marks {
		if err == nil {
			err = t.q.Write(ctx, fileErase, session, f.Path)
		}
	}
	if err != nil {
		return fmt.Errorf("trim files: %w", err)
	}
	return nil
}

func (t files) Forget(ctx context.Context, session string) error {
	if err := t.q.Write(ctx, fileForget, session); err != nil {
		return fmt.Errorf("forget files: %w", err)
	}
	return nil
}

func scanFile(row Row) (f file.File, err error) {
	var mode, modified, stored, deleted, lost int64
	err = row.Scan(&f.Session, &f.Path, &f.Version, &f.Size, &f.SHA256, &mode, &modified, &stored, &deleted, &f.Origin, &lost)
	if err != nil {
		return file.File{}, fmt.Errorf("scan file: %w", err)
	}
	f.Mode, f.Modified, f.Stored, f.Deleted, f.Lost = uint32(mode), timeOf(modified), timeOf(stored), deleted != 0, lost != 0 //nolint:gosec // it was one
	return f, nil
}

func scanNumber(row Row) (n int64, err error) {
	err = row.Scan(&n)
	return n, err
}

// FileDigests implements store.History.
func (t history) FileDigests(ctx context.Context, after string, limit int) ([]string, error) {
	list, err := all(ctx, t.Tx, func(row Row) (digest string, err error) {
		err = row.Scan(&digest)
		return digest, err
	}, fileKept, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list what files keep: %w", err)
	}
	return list, nil
}

type synced struct{ *Tx }

func (t synced) List(ctx context.Context, sandbox, after string, limit int) ([]file.Synced, error) {
	list, err := all(ctx, t.Tx, func(row Row) (s file.Synced, err error) {
		var mode, modified, at int64
		err = row.Scan(&s.Path, &s.SHA256, &mode, &s.Size, &modified, &at)
		s.Mode, s.Modified, s.At = uint32(mode), timeOf(modified), timeOf(at) //nolint:gosec // it was one
		return s, err
	}, syncedList, sandbox, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list what was synced: %w", err)
	}
	return list, nil
}

func (t synced) Put(ctx context.Context, sandbox string, s *file.Synced) error {
	err := t.q.Write(ctx, syncedInsert, sandbox, s.Path, s.SHA256, int64(s.Mode), s.Size, micros(s.Modified), micros(s.At))
	if err != nil {
		return fmt.Errorf("remember what was synced: %w", err)
	}
	return nil
}

func (t synced) Drop(ctx context.Context, sandbox string, paths ...string) error {
	for _, path := range paths {
		if err := t.q.Write(ctx, syncedDrop, sandbox, path); err != nil {
			return fmt.Errorf("forget what was synced: %w", err)
		}
	}
	return nil
}

func (t synced) Forget(ctx context.Context, sandbox string) error {
	if err := t.q.Write(ctx, syncedForget, sandbox); err != nil {
		return fmt.Errorf("forget what was synced: %w", err)
	}
	return nil
}
