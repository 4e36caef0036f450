package keeper

import (
	"context"
	"io"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/file"
	"github.com/aurea-dev/aurea/internal/filesync"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// SyncSandbox makes the files of a sandbox and the stored ones of its session
// alike, both ways, in one pass. Its session is its owner's, whoever asks.
func (k *Keeper) SyncSandbox(ctx context.Context, id string, asked live.Sync) (filesync.Result, error) {
	return k.syncNow(ctx, id, asked, func(side filesync.Side, req filesync.Request) (filesync.Result, error) {
		return k.syncer.Sync(ctx, side, req)
	})
}

// ResolveConflict settles a conflict that a pass has left.
func (k *Keeper) ResolveConflict(ctx context.Context, id string, asked live.Sync, path string, keep filesync.Winner) (filesync.Result, error) {
	return k.syncNow(ctx, id, asked, func(side filesync.Side, req filesync.Request) (filesync.Result, error) {
		if err := k.record(ctx, store.Act{Action: "sync.resolve", Target: id, After: map[string]any{"path": path, "keep": keep}}); err != nil {
			return filesync.Result{}, err
		}
		return k.syncer.Resolve(ctx, side, req, path, keep)
	})
}

func (k *Keeper) syncNow(ctx context.Context, id string, asked live.Sync, do func(filesync.Side, filesync.Request) (filesync.Result, error)) (filesync.Result, error) {
	if err := asked.Check(); err != nil {
		return filesync.Result{}, err
	}
	s, host, err := k.awake(ctx, id)
	if err != nil {
		return filesync.Result{}, err
	}
	if c, _ := policy.Asking(ctx); c.Project() != 0 { // whoever is not known saw no sandbox
		return filesync.Result{}, noStorage(c, &asked)
	}
	req, err := syncRequest(&s, asked)
	if err != nil {
		return filesync.Result{}, err
	}
	result, err := do(host.Files(id), req)
	k.tellStored(req.Session, id)
	name := s.SyncAs(asked).Session
	for i := range result.Conflicts {
		result.Conflicts[i].Stored.Session = name
	}
	return result, err
}

// syncRequest is what is synced of a sandbox.
func syncRequest(s *live.Sandbox, asked live.Sync) (filesync.Request, error) {
	how := s.SyncAs(asked)
	key, err := file.Key(s.Owner, how.Session)
	return filesync.Request{Session: key, Sandbox: s.ID, Root: how.Root, Strategy: filesync.Strategy(how.Strategy)}, err
}

// storage is what the files of a session of the caller's are kept under.
func storage(ctx context.Context, session string) (string, error) {
	c, err := policy.Asking(ctx)
	if err != nil {
		return "", err
	}
	if err := c.NoProject("stored files"); err != nil {
		return "", err
	}
	return file.Key(c.ID, session)
}

// StoredFiles lists the stored files of a session of the caller's behind a path.
func (k *Keeper) StoredFiles(ctx context.Context, session, after string, limit int) ([]file.File, error) {
	key, err := storage(ctx, session)
	if err != nil {
		return nil, err
	}
	list, err := k.shelf.List(ctx, key, after, limit)
	return called(session, list), err
}

// called gives files the name of their session that its owner knows.
func called(session string, list []file.File) []file.File {
	for i := range list {
		list[i].Session = session
	}
	return list
}

// StoredUsage says what a session keeps, and how much it may.
func (k *Keeper) StoredUsage(ctx context.Context, session string) (file.Usage, filesync.Limits, error) {
	key, err := storage(ctx, session)
	if err != nil {
		return file.Usage{}, filesync.Limits{}, err
	}
	u, err := k.shelf.Usage(ctx, key)
	return u, k.shelf.Limits(), err
}

// OpenStored returns a version of a stored file and its bytes, for the caller to
// close; version 0 is the newest.
func (k *Keeper) OpenStored(ctx context.Context, session, path string, version int64) (file.File, blob.Blob, error) {
	key, err := storage(ctx, session)
	if err != nil {
		return file.File{}, nil, err
	}
	f, err := k.shelf.Get(ctx, key, path, version)
	if err != nil {
		return f, nil, err
	}
	b, err := k.shelf.Open(ctx, f)
	f.Session = session
	return f, b, err
}

// PutStored stores a file from outside.
func (k *Keeper) PutStored(ctx context.Context, session, path string, mode uint32, body io.Reader) (file.File, error) {
	key, err := storage(ctx, session)
	if err != nil {
		return file.File{}, err
	}
	if k.Demand != nil {
		if err := k.Demand(ctx); err != nil {
			return file.File{}, err
		}
	}
	f, err := k.shelf.Put(ctx, key, path, mode, -1, body)
	k.tellStored(key, "")
	f.Session = session
	return f, err
}

// DeleteStored marks a stored file as deleted; its versions stay.
func (k *Keeper) DeleteStored(ctx context.Context, session, path string) error {
	key, err := storage(ctx, session)
	if err != nil {
		return err
	}
	if err := k.record(ctx, store.Act{Action: "file.delete", Target: session, After: map[string]any{"path": path}}); err != nil {
		return err
	}
	err = k.shelf.Delete(ctx, key, path, -1)
	k.tellStored(key, "")
	return err
}

// StoredVersions lists the versions of a path, the newest first.
func (k *Keeper) StoredVersions(ctx context.Context, session, path string, limit int) ([]file.File, error) {
	key, err := storage(ctx, session)
	if err != nil {
		return nil, err
	}
	list, err := k.shelf.Versions(ctx, key, path, limit)
	return called(session, list), err
}

// StoredDiff shows how one version of a text became another; 0 is the newest.
func (k *Keeper) StoredDiff(ctx context.Context, session, path string, from, to int64) (string, error) {
	key, err := storage(ctx, session)
	if err != nil {
		return "", err
	}
	return k.shelf.Diff(ctx, key, path, from, to)
}
