package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

const (
	// artifactsFolder is the folder of a workspace whose files are kept one by
	// one.
	artifactsFolder = "artifacts"
	// maxInline bounds what rides along with one result; the rest is put.
	maxInline = 128 << 10
	// maxLeft bounds the files of artifacts/, below what one result may name.
	maxLeft = dispatch.MaxArtifacts - 10
	// maxSkipped bounds the list of what was left out.
	maxSkipped = 100
)

// details is what a result says for people and programs.
type details struct {
	Snapshot       string          `json:"snapshot,omitempty"`
	SnapshotSHA256 string          `json:"snapshot_sha256,omitempty"`
	SnapshotBytes  int64           `json:"snapshot_bytes,omitempty"`
	TreeDigest     string          `json:"tree_digest,omitempty"`
	Verdict        sandbox.Verdict `json:"verdict"`
	Cause          string          `json:"cause,omitempty"`
	ExitCode       int             `json:"exit_code"`
	StdoutBytes    int64           `json:"stdout_bytes"`
	StderrBytes    int64           `json:"stderr_bytes"`
	Error          string          `json:"error,omitempty"`
}

// blob is bytes that a result refers to. Small ones are in data.
type blob struct {
	name   string // of the artifact; the snapshot has none
	sha256 string
	size   int64
	data   []byte
	open   func() (io.ReadCloser, error)
}

func blobOf(name string, data []byte) blob {
	sum := sha256.Sum256(data)
	return blob{
		name: name, sha256: hex.EncodeToString(sum[:]), size: int64(len(data)), data: data,
		open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
	}
}

// seal keeps what the try has left and makes its result.
func (y *try) seal() *dispatch.Result {
	blobs := []blob{
		y.output.log(evidence.StdoutLog, sandbox.Stdout, y.record.Stdout.SHA256),
		y.output.log(evidence.StderrLog, sandbox.Stderr, y.record.Stderr.SHA256),
	}
	if y.dir != "" {
		blobs = append(blobs, y.workspace()...)
	} else {
		blobs = append(blobs, blobOf(evidence.ChangesDiff, nil))
	}
	res := &dispatch.Result{Held: y.lease.Held, Artifacts: []evidence.Artifact{}, Inline: map[string][]byte{}}
	y.carry(res, blobs)
	if len(y.record.Skipped) > maxSkipped {
		more := len(y.record.Skipped) - maxSkipped
		y.record.Skipped = append(slices.Clip(y.record.Skipped[:maxSkipped]), fmt.Sprintf("and %d more", more))
	}
	res.Record = y.record
	res.Success = y.err == nil && y.record.Verdict == sandbox.OK
	res.Details = y.details()
	return res
}

// workspace keeps what is in the workspace: what changed, what was left, and
// all of it.
func (y *try) workspace() []blob {
	s := y.survey()
	snapshot, seen := y.snapshot(s)
	if !seen { // it was cut short, or never begun
		s = y.survey()
		if err := s.Look(y.ctx, y.dir, y.Bounds); err != nil {
			y.fail(err)
			return append(snapshot, blobOf(evidence.ChangesDiff, nil))
		}
	}
	return slices.Concat([]blob{blobOf(evidence.ChangesDiff, s.Diff())}, y.left(s), snapshot)
}

func (y *try) survey() *evidence.Survey {
	return evidence.NewSurvey(y.plan.before, artifactsFolder, maxLeft, dispatch.MaxInline)
}

// snapshot stores the workspace, and surveys it on the way: seen says whether
// that came to its end. A try whose workspace cannot be kept has failed: there
// is no evidence of it.
func (y *try) snapshot(s *evidence.Survey) (blobs []blob, seen bool) {
	if y.NoSnapshot {
		return nil, false
	}
	stored, seen, err := y.store(s)
	y.record.Skipped = append(y.record.Skipped, stored.Skipped...)
	if err != nil {
		y.fail(err)
		return nil, false
	}
	snap := stored.Snapshot
	y.record.Snapshot = &snap
	y.happen(event.SnapshotStored, map[string]any{
		"path": snap.Path, "sha256": snap.SHA256, "bytes": snap.Bytes, "tree_digest": snap.TreeDigest,
	})
	return []blob{{
		sha256: snap.SHA256, size: snap.Bytes, data: stored.Data,
		open: func() (io.ReadCloser, error) { return os.Open(snap.Path) },
	}}, seen
}

// store packs the workspace, unless an earlier process has done so.
func (y *try) store(s *evidence.Survey) (stored evidence.Stored, seen bool, err error) {
	if p := y.past; p != nil && p.snapshot != nil {
		if info, err := os.Stat(p.snapshot.Path); err == nil && info.Size() == p.snapshot.Bytes {
			return evidence.Stored{Snapshot: *p.snapshot, Skipped: p.skipped}, false, nil
		}
	}
	stored, err = y.archive.Store(y.ctx, y.lease.JobID, y.lease.Attempt, y.dir, s)
	if err == nil {
		y.journal.write(entry{Snapshot: &stored.Snapshot, Skipped: stored.Skipped})
	}
	return stored, true, err
}

// left lists what the job put into artifacts/.
func (y *try) left(s *evidence.Survey) []blob {
	all, more := s.Left()
	if more > 0 {
		y.record.Skipped = append(y.record.Skipped, fmt.Sprintf("%s: %d more files are in the snapshot alone", artifactsFolder, more))
	}
	blobs := make([]blob, 0, len(all))
	for _, l := range all {
		// One name that the manager refuses would cost the whole result, and with
		// it the evidence: code must not be able to hide behind a name.
		if job.CheckPath("artifacts", l.Name) != nil || dispatch.CheckArtifact("artifacts", l.Name) != nil {
			y.record.Skipped = append(y.record.Skipped, fmt.Sprintf("%q: no name for an artifact", clip(l.Name)))
			continue
		}
		blobs = append(blobs, blob{
			name: l.Name, sha256: l.SHA256, size: l.Bytes, data: l.Data,
			open: func() (io.ReadCloser, error) { return evidence.OpenLeft(y.dir, l.Name) },
		})
	}
	return blobs
}

// carry lets small blobs ride along and puts the others. It names in the result
// only what the manager has or gets.
func (y *try) carry(res *dispatch.Result, blobs []blob) {
	room := maxInline
	put := map[string]bool{}
	for _, b := range blobs {
		_, rides := res.Inline[b.sha256]
		switch {
		case rides || put[b.sha256]:
		case b.size == int64(len(b.data)) && b.size <= dispatch.MaxInline && len(b.data) <= room:
			res.Inline[b.sha256] = b.data
			room -= len(b.data)
		default:
			if err := y.put(b); err != nil {
				y.fail(err)
				if b.name == "" {
					y.record.Snapshot = nil
				}
				continue
			}
			put[b.sha256] = true
		}
		if b.name != "" {
			res.Artifacts = append(res.Artifacts, evidence.Artifact{Name: b.name, SHA256: b.sha256, Bytes: b.size})
		}
	}
}

// put uploads one blob, for as long as the manager is away.
func (y *try) put(b blob) error {
	// A slow line gets a second for each quarter of a megabyte.
	patience := dispatch.ReportTimeout + time.Duration(b.size/(256<<10))*time.Second
	err := y.session.insist(y.ctx, "put blob", patience, func(ctx context.Context, session string) error {
		r, err := b.open()
		if err != nil {
			// Its bytes are gone, and asking again does not bring them back.
			return fault.New(fault.Invalid, "read blob: %w", err)
		}
		defer r.Close() //nolint:errcheck // it was only read
		return y.Manager.PutBlob(ctx, session, b.sha256, b.size, r)
	})
	if err != nil {
		return fmt.Errorf("hand over %s: %w", describe(b), err)
	}
	return nil
}

func describe(b blob) string {
	if b.name == "" {
		return "the snapshot"
	}
	return b.name
}

func (y *try) details() json.RawMessage {
	rec := &y.record
	d := details{
		Verdict: rec.Verdict, Cause: rec.Cause, ExitCode: rec.ExitCode,
		StdoutBytes: rec.Stdout.Bytes, StderrBytes: rec.Stderr.Bytes,
	}
	if s := rec.Snapshot; s != nil {
		d.Snapshot, d.SnapshotSHA256, d.SnapshotBytes, d.TreeDigest = s.Path, s.SHA256, s.Bytes, s.TreeDigest
	}
	if y.err != nil {
		d.Error = clip(y.err.Error())
	}
	raw, err := json.Marshal(d)
	if err != nil {
		y.task.log.Error("could not write the details down", "error", err)
		return json.RawMessage(`{"error":"the details could not be written down"}`)
	}
	return raw
}
