package manager

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// Evidence returns the record of one try of a job; attempt 0 is the newest.
func (m *Manager) Evidence(ctx context.Context, id string, attempt int) (r evidence.Record, err error) {
	err = m.Store.View(ctx, func(tx store.Tx) error {
		if _, err := visible(ctx, tx, id); err != nil {
			return err
		}
		r, err = tx.Records().Get(ctx, id, attempt)
		return err
	})
	return r, err
}

// Artifacts lists what one try of a job left.
func (m *Manager) Artifacts(ctx context.Context, id string, attempt int) (as []evidence.Artifact, err error) {
	err = m.Store.View(ctx, func(tx store.Tx) error {
		if _, err := visible(ctx, tx, id); err != nil {
			return err
		}
		as, err = tx.Records().Artifacts(ctx, id, attempt)
		return err
	})
	return as, err
}

// OpenArtifact opens one artifact by name.
func (m *Manager) OpenArtifact(ctx context.Context, id string, attempt int, name string) (io.ReadSeekCloser, evidence.Artifact, error) {
	as, err := m.Artifacts(ctx, id, attempt)
	if err != nil {
		return nil, evidence.Artifact{}, err
	}
	for _, a := range as {
		if a.Name == name {
			b, err := m.openBlob(ctx, id, attempt, a.SHA256)
			return b, a, removed(err, a)
		}
	}
	return nil, evidence.Artifact{}, fault.New(fault.NotFound, "job %s left no artifact named %q", id, name)
}

// OpenSnapshot opens the snapshot of one try.
func (m *Manager) OpenSnapshot(ctx context.Context, id string, attempt int) (io.ReadSeekCloser, evidence.Snapshot, error) {
	r, err := m.Evidence(ctx, id, attempt)
	if err != nil {
		return nil, evidence.Snapshot{}, err
	}
	if r.Snapshot == nil {
		return nil, evidence.Snapshot{}, fault.New(fault.NotFound, "no snapshot was taken of job %s", id)
	}
	b, err := m.openBlob(ctx, id, r.Attempt, r.Snapshot.SHA256)
	return b, *r.Snapshot, removed(err, evidence.Artifact{Name: "the snapshot"})
}

// openBlob opens bytes that a try left: the small ones lie with its record.
func (m *Manager) openBlob(ctx context.Context, id string, attempt int, digest string) (io.ReadSeekCloser, error) {
	var small []byte
	var there bool
	err := m.Store.View(ctx, func(tx store.Tx) (err error) {
		small, there, err = tx.Records().Blob(ctx, id, attempt, digest)
		return err
	})
	if err != nil {
		return nil, err
	}
	if there {
		return held{bytes.NewReader(small)}, nil
	}
	b, _, err := m.Blobs.Open(ctx, digest)
	return b, err
}

// held is an open blob whose bytes are in memory.
type held struct{ *bytes.Reader }

func (held) Close() error { return nil }

// storedLog reads the output of an ended try. A try that left no record, or a
// job that never ran, has no output.
func (m *Manager) storedLog(ctx context.Context, id string, attempt int, s sandbox.Stream, offset int64) ([]byte, error) {
	if attempt == 0 {
		return nil, nil
	}
	name := evidence.StdoutLog
	if s == sandbox.Stderr {
		name = evidence.StderrLog
	}
	b, _, err := m.OpenArtifact(ctx, id, attempt, name)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = b.Close() }()
	if _, err := b.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	p := make([]byte, maxLog)
	n, err := io.ReadFull(b, p)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	return p[:n], nil
}

// Health looks at the workers that are connected now.
func (m *Manager) Health(ctx context.Context) (job.Health, error) {
	h := job.Health{Uptime: m.Now().Sub(m.started)}
	ws, err := m.Workers(ctx)
	if err != nil {
		return h, err
	}
	seen, told := map[string]bool{}, map[job.Driver]bool{}
	for _, w := range ws {
		if !m.attended(&w) {
			continue
		}
		h.Workers++
		if w.Paused != "" {
			h.Paused = append(h.Paused, w.ID+": "+w.Paused)
		}
		for _, d := range w.Proofs {
			if !told[d] {
				told[d] = true
				h.Proofs = append(h.Proofs, d)
			}
			if d.Degraded == "" && !seen[d.Name] {
				seen[d.Name] = true
				h.Drivers = append(h.Drivers, d.Name)
			}
		}
	}
	return h, nil
}

// attended reports whether a worker's stream is open: here, or as far as is
// known at another manager that shares the database.
func (m *Manager) attended(w *job.Worker) bool {
	return m.sessions.attending(w.ID) || !m.Alone && w.Connected && w.Manager != m.ID && m.Now().Sub(w.SeenAt) < aliveFor
}

// aliveFor is how long a worker at another manager counts as connected without
// a sign of life: an idle one gives one with each request for work.
const aliveFor = time.Minute

// Ready reports whether the database answers.
func (m *Manager) Ready(ctx context.Context) error {
	_, err := m.LastEvent(ctx)
	return err
}
