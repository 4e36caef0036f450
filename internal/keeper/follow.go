package keeper

import (
	"context"
	"errors"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/filesync"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// following is a sandbox whose files are kept alike with those of its session
// for as long as it runs and its worker is here.
type following struct {
	req    filesync.Request
	stored chan struct{} // somebody else changed the files of the session
	cancel context.CancelCauseFunc
}

var errNotFollowed = errors.New("the files of the sandbox are not followed any more")

// The pauses of who follows, and how long a sandbox that ends is waited for.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
	lastTime = 10 * time.Second
)

// follow brings what is followed to how a sandbox stands: one that runs, and is
// to be synced continuously, is; any other is not.
func (k *Keeper) follow(s *live.Sandbox) {
	wanted := s.State == sandbox.StateRunning && s.Paused == "" && s.Spec.Sync != nil && s.Spec.Sync.Continuous
	req, err := syncRequest(s, live.Sync{})
	if wanted && err != nil { // it was checked when it was asked for
		k.Logger.Error("the files of a sandbox cannot be followed", "sandbox", s.ID, "error", err)
		wanted = false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.follows[s.ID]
	if now != nil && (!wanted || now.req != req) {
		now.cancel(errNotFollowed)
		delete(k.follows, s.ID)
		now = nil
	}
	if !wanted || now != nil || k.stop == nil {
		return
	}
	ctx, cancel := context.WithCancelCause(k.life)
	f := &following{req: req, stored: make(chan struct{}, 1), cancel: cancel}
	k.follows[s.ID] = f
	k.tasks.Go(func() {
		defer cancel(errNotFollowed)
		k.keepAlike(ctx, f)
	})
}

// followHere is follow where the worker's own stream is here: who has that
// follows, and nobody else.
func (k *Keeper) followHere(s *live.Sandbox) {
	if k.here(s.Worker) {
		k.follow(s)
	}
}

// unfollow ends the following of a sandbox's files, without waiting for it.
func (k *Keeper) unfollow(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.follows[id]; f != nil {
		f.cancel(errNotFollowed)
		delete(k.follows, id)
	}
}

// keepAlike follows until ctx ends. What fails is tried again: it never is the
// end of the sandbox.
func (k *Keeper) keepAlike(ctx context.Context, f *following) {
	log := k.Logger.With("sandbox", f.req.Sandbox)
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		begun := time.Now()
		err := k.watchFiles(ctx, f)
		if ctx.Err() != nil {
			return
		}
		if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Gone) {
			k.unfollow(f.req.Sandbox)
			return
		}
		log.Info("the files of a sandbox are followed anew", "error", err)
		if time.Since(begun) > maxPause {
			pause = minPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// watchFiles follows until the watch ends. It is no use of the sandbox: one that
// nobody else uses is idle.
func (k *Keeper) watchFiles(ctx context.Context, f *following) error {
	id := f.req.Sandbox
	var s live.Sandbox
	err := k.Store.View(ctx, func(tx store.Tx) (err error) {
		s, err = tx.Sandboxes().Get(ctx, id)
		return err
	})
	if err != nil {
		return err
	}
	if s.State.Ended() {
		return fault.New(fault.Gone, "the sandbox has ended")
	}
	host, err := k.host(ctx, &s)
	if err != nil {
		return err
	}
	files := host.Files(id)
	w, err := files.Watch(ctx, f.req.Root, true)
	if fault.Is(err, fault.NotFound) {
		if err = files.Mkdir(ctx, f.req.Root, 0o755); err == nil {
			w, err = files.Watch(ctx, f.req.Root, true)
		}
		err = away(err)
	}
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	return away(k.syncer.Follow(ctx, files, w, f.req, filesync.Following{Stored: f.stored, Report: func(r filesync.Result, _ error) {
		if len(r.Uploaded)+len(r.Deleted)+len(r.Conflicts) > 0 {
			k.tellStored(f.req.Session, id)
		}
	}}))
}

// away keeps what a sandbox says is missing inside it from looking as if it were
// missing itself.
func away(err error) error {
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Gone) {
		return fault.New(fault.Unavailable, "watch the files: %w", err)
	}
	return err
}

// tellStored wakes who follows the files of a session, but for who changed them.
func (k *Keeper) tellStored(session, but string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, f := range k.follows {
		if id == but || f.req.Session != session {
			continue
		}
		select {
		case f.stored <- struct{}{}:
		default: // it is awake
		}
	}
}

// syncLast syncs a sandbox that is followed once more before it ends, so that
// its files outlive it. That has its time, and never keeps it from ending.
func (k *Keeper) syncLast(ctx context.Context, id string) {
	var s live.Sandbox
	err := k.Store.View(ctx, func(tx store.Tx) (err error) {
		s, err = tx.Sandboxes().Get(ctx, id)
		return err
	})
	if err != nil || s.State != sandbox.StateRunning || s.Paused != "" || s.Spec.Sync == nil || !s.Spec.Sync.Continuous {
		return
	}
	k.unfollow(id) // a pass of its own would be waited for
	ctx, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), lastTime, errSlow)
	defer stop()
	host, err := k.host(ctx, &s)
	var req filesync.Request
	if err == nil {
		req, err = syncRequest(&s, live.Sync{})
	}
	var r filesync.Result
	if err == nil {
		r, err = k.syncer.Sync(ctx, host.Files(id), req)
		k.tellStored(req.Session, id)
	}
	if err != nil || r.Failed > 0 {
		k.Logger.Warn("not all files of a sandbox were synced before its end", "sandbox", id, "failed", r.Failed, "error", err)
	}
}
