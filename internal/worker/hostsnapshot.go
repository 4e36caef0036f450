package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

const (
	manifestName = "manifest.json"
	memoryName   = "memory" // the driver's folder in that of a snapshot
	spoolWait    = 10 * time.Second
)

var errSnapshotGone = fault.New(fault.NotFound, "the worker does not have this snapshot, or it is damaged").WithCode("no_such_snapshot")

// manifest says what a snapshot holds beside what its driver saved.
type manifest struct {
	Version    int            `json:"version"`
	Generation int64          `json:"generation"`
	Image      string         `json:"image"`
	Limits     sandbox.Limits `json:"limits"`
	Bytes      int64          `json:"bytes"`
	// Execs ran at its moment. One that a sandbox was put aside with has none:
	// their output ends there anyway.
	Execs []savedExec `json:"execs,omitempty"`
}

// savedExec is a command at the moment of a snapshot.
type savedExec struct {
	Order live.Command    `json:"order"`
	Began time.Time       `json:"began"`
	At    sandbox.Offsets `json:"at"`
}

func (b *base) checkpoint(id string) string { return filepath.Join(b.folder, "checkpoints", id) }

// manifest reads what a snapshot holds.
func (b *base) manifest(id string) (m manifest, err error) {
	if err := dispatch.CheckSnapshotID("restore", id); err != nil {
		return m, err
	}
	data, err := os.ReadFile(filepath.Join(b.checkpoint(id), manifestName))
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil || m.Version != keptVersion {
		return m, errSnapshotGone
	}
	return m, nil
}

// SnapshotSandbox takes a snapshot, or puts a sandbox aside as one.
func (rc receiver) SnapshotSandbox(ctx context.Context, o live.SnapshotOrder) (made live.SnapshotMade, err error) {
	if err := dispatch.CheckSnapshotOrder(o); err != nil {
		return made, err
	}
	k, err := rc.run.hosted.there(ctx, o.Sandbox)
	if err != nil {
		return made, err
	}
	if err := k.takeTurn(ctx); err != nil {
		return made, err
	}
	defer k.giveTurn()
	box, paused, err := k.stands()
	switch {
	case err != nil:
		return made, err
	case paused == live.Checkpointed && o.Aside:
		return made, nil
	case paused == live.Checkpointed:
		return made, errCheckpointed
	case o.Kind == live.Files:
		return k.saveFiles(ctx, box)
	case o.Aside:
		return k.putAside(ctx, box, o)
	}
	return k.saveFull(ctx, box, o)
}

// DropSnapshot removes a snapshot that is kept here.
func (rc receiver) DropSnapshot(_ context.Context, id string) error {
	if err := dispatch.CheckSnapshotID("id", id); err != nil {
		return err
	}
	if err := os.RemoveAll(rc.run.base.checkpoint(id)); err != nil {
		return fmt.Errorf("remove a snapshot: %w", err)
	}
	return nil
}

// saveFull saves memory and files, and where the output of each command stood.
func (k *kept) saveFull(ctx context.Context, box *sandbox.Sandbox, o live.SnapshotOrder) (made live.SnapshotMade, err error) {
	if m, err := k.base.manifest(o.ID); err == nil && m.Generation == o.Generation {
		return m.made(), nil // it was taken before
	}
	folder := k.base.checkpoint(o.ID)
	if err = os.RemoveAll(folder); err == nil {
		err = os.Mkdir(folder, 0o700)
	}
	if err != nil {
		return made, fmt.Errorf("make the folder of a snapshot: %w", err)
	}
	snap, err := box.Snapshot(ctx, filepath.Join(folder, memoryName), sandbox.SnapshotOptions{Generation: o.Generation, Aside: o.Aside})
	m := manifest{Version: keptVersion, Generation: o.Generation, Image: k.made.Image, Limits: box.Enforced(), Bytes: snap.Bytes}
	if err == nil && !o.Aside {
		m.Execs, err = k.saveExecs(ctx, folder, snap.Offsets)
	}
	if err == nil {
		err = writeManifest(folder, m)
	}
	if err == nil && !o.Aside && ctx.Err() != nil {
		err = context.Cause(ctx) // who asked for it is gone, and would never drop it
	}
	if err != nil {
		return made, errors.Join(err, os.RemoveAll(folder))
	}
	return m.made(), nil
}

// made is what the manager is told of a snapshot.
func (m *manifest) made() live.SnapshotMade {
	made := live.SnapshotMade{Bytes: m.Bytes}
	for _, x := range m.Execs {
		made.Execs = append(made.Execs, x.Order.ID)
	}
	return made
}

func writeManifest(folder string, m manifest) error {
	data, err := json.Marshal(m)
	if err == nil {
		err = writeAside(filepath.Join(folder, manifestName), append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write down a snapshot: %w", err)
	}
	return nil
}

// saveExecs copies what the commands had printed by the moment of a snapshot, so
// that whoever goes on from it goes on with that too.
func (k *kept) saveExecs(ctx context.Context, folder string, at map[string]sandbox.Offsets) ([]savedExec, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, spoolWait, errSilent)
	defer cancel()
	k.mu.Lock()
	var running []*keptExec
	for id, e := range k.execs {
		if _, saved := at[id]; saved && e.running() != nil {
			running = append(running, e)
		}
	}
	k.mu.Unlock()
	var all []savedExec
	for _, e := range running {
		id := e.order.ID
		if err := e.out.awaitSeen(bounded, at[id]); err != nil {
			return nil, err
		}
		for i, n := range []int64{at[id].Stdout, at[id].Stderr} {
			if err := copyPrefix(e.out.name(i), fmt.Sprintf("%s/%s.%d", folder, id, i+1), n); err != nil {
				return nil, err
			}
		}
		all = append(all, savedExec{Order: e.order, Began: e.began, At: at[id]})
	}
	slices.SortFunc(all, func(a, b savedExec) int { return a.Began.Compare(b.Began) })
	return all, nil
}

// copyPrefix copies the beginning of a file, where there is one.
func copyPrefix(from, to string, n int64) error {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("copy spool: %w", err)
	}
	defer in.Close() //nolint:errcheck // it was only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("copy spool: %w", err)
	}
	_, err = io.Copy(out, io.LimitReader(in, n))
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copy spool: %w", err)
	}
	return nil
}

// saveFiles puts the workspace away as a blob.
func (k *kept) saveFiles(ctx context.Context, box *sandbox.Sandbox) (made live.SnapshotMade, err error) {
	file, err := os.CreateTemp(k.base.boxFolder(k.order.ID), "files-*.tmp")
	if err != nil {
		return made, fmt.Errorf("make room for files: %w", err)
	}
	defer os.Remove(file.Name()) //nolint:errcheck // what is left is swept at the next start
	defer file.Close()           //nolint:errcheck // it was written and read
	digest := sha256.New()
	to := &bounded{w: io.MultiWriter(file, digest), left: maxFilesBytes}
	if err := box.Get(ctx, workspacePath, to); err != nil {
		return made, err
	}
	made = live.SnapshotMade{SHA256: hex.EncodeToString(digest.Sum(nil)), Bytes: maxFilesBytes - to.left}
	patience := dispatch.ReportTimeout + time.Duration(made.Bytes/(256<<10))*time.Second
	err = k.session.insist(ctx, "put blob", patience, func(ctx context.Context, session string) error {
		return k.Manager.PutBlob(ctx, session, made.SHA256, made.Bytes, io.NewSectionReader(file, 0, made.Bytes))
	})
	return made, err
}

// maxFilesBytes bounds a snapshot of files.
const maxFilesBytes = 1 << 30

// bounded is a writer that takes so much and no more.
type bounded struct {
	w    io.Writer
	left int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		return 0, fault.New(fault.TooLarge, "the files have more than %d bytes", int64(maxFilesBytes)).WithCode("files_too_large")
	}
	n, err := b.w.Write(p)
	b.left -= int64(n)
	return n, err
}
