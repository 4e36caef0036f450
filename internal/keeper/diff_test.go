package keeper

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"maps"
	"slices"
	"testing"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(files[name]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestDiff compares the files of a sandbox at two snapshots, and with now.
func TestDiff(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	now := map[string]string{"a": "one\n", "b": "stays"}
	w := &dispatchtest.Scripted{Get: func(_ context.Context, w io.Writer) error {
		_, err := w.Write(archive(t, now))
		return err
	}}
	w.Open, w.Tell = w.Boxes.OpenSandbox, s.boxes.Tell
	w.Snapshot = func(ctx context.Context, o live.SnapshotOrder) (live.SnapshotMade, error) {
		if o.Kind == live.Full {
			return live.SnapshotMade{Bytes: 1}, nil
		}
		data := archive(t, now)
		digest := blob.Digest(data)
		return live.SnapshotMade{SHA256: digest, Bytes: int64(len(data))}, s.Blobs.Put(ctx, digest, int64(len(data)), bytes.NewReader(data))
	}
	s.host = w
	x, other := s.create(live.Request{}), s.create(live.Request{})
	snapshot := func(id string, kind live.SnapshotKind) string {
		t.Helper()
		snap, err := s.SnapshotSandbox(as("o"), id, kind, "")
		if err != nil {
			t.Fatal(err)
		}
		return snap.ID
	}
	first := snapshot(x.ID, live.Files)
	now = map[string]string{"a": "two\n", "b": "stays", "c": "new"}
	second := snapshot(x.ID, live.Files)
	now = map[string]string{"b": "stays"}
	for _, tc := range []struct {
		from, to                 string
		added, modified, deleted int
	}{{first, second, 1, 1, 0}, {second, first, 0, 1, 1}, {first, first, 0, 0, 0}, {first, "", 0, 0, 1}, {second, "", 0, 0, 2}} {
		c, err := s.DiffSandbox(as("o"), x.ID, tc.from, tc.to)
		if err != nil || c.Counts[evidence.Added] != tc.added || c.Counts[evidence.Modified] != tc.modified || c.Counts[evidence.Deleted] != tc.deleted {
			t.Errorf("%+v: %+v, %v", tc, c, err)
		}
	}
	foreign, full := snapshot(other.ID, live.Files), snapshot(x.ID, live.Full)
	s.diffFull(w, x.ID, full, first)
	if _, err := s.DiffSandbox(as("o"), x.ID, full, ""); !fault.Is(err, fault.Denied) {
		t.Errorf("a full one, by who may only read: %v", err)
	}
	for from, code := range map[string]string{foreign: "no_such_snapshot", "none": "no_such_snapshot"} {
		if _, err := s.DiffSandbox(as("o"), x.ID, from, ""); !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != code {
			t.Errorf("from %s: %v", code, err)
		}
	}
	if _, err := s.DiffSandbox(as("another"), x.ID, first, second); !fault.Is(err, fault.NotFound) {
		t.Errorf("by another: %v", err)
	}
	w.Get = func(_ context.Context, w io.Writer) error {
		_, _ = w.Write(archive(t, now)[:700])
		return fault.New(fault.Unavailable, "the worker went away")
	}
	if _, err := s.DiffSandbox(as("o"), x.ID, first, ""); !fault.Is(err, fault.Unavailable) {
		t.Errorf("with a worker that goes away: %v", err)
	}
	if _, err := s.EndSandbox(as("o"), x.ID, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DiffSandbox(as("o"), x.ID, first, ""); !fault.Is(err, fault.Gone) {
		t.Errorf("with now, after the end: %v", err)
	}
	if c, err := s.DiffSandbox(as("o"), x.ID, first, second); err != nil || len(c.Differences) != 2 {
		t.Errorf("after the end: %+v, %v", c, err)
	}
}

// diffFull compares a snapshot that has the memory too, on either side: a sandbox
// goes on from it, and has ended when there is an answer, whatever that is.
func (s *stage) diffFull(w *dispatchtest.Scripted, id, full, files string) {
	s.t.Helper()
	ctx := policy.With(s.t.Context(), policy.Caller{Kind: policy.Operator, ID: "o"})
	open, get := w.Open, w.Get
	defer func() { w.Open, w.Get = open, get }()
	var restored []string
	w.Open = func(ctx context.Context, o live.Order) (live.Made, error) {
		restored = append(restored, o.Restore)
		return open(ctx, o)
	}
	check := func(what string, from, to string, differences int, want error) {
		s.t.Helper()
		restored = nil
		c, err := s.DiffSandbox(ctx, id, from, to)
		if len(c.Differences) != differences || (err == nil) != (want == nil) {
			s.t.Errorf("%s: %+v, %v", what, c, err)
		}
		if !slices.Equal(restored, []string{full}) {
			s.t.Errorf("%s went on from %q", what, restored)
		}
		left, err := s.Sandboxes(ctx, store.SandboxFilter{Open: true})
		if err != nil || len(left) != 2 {
			s.t.Errorf("%s left %d sandboxes, %v", what, len(left), err)
		}
	}
	check("with now", full, "", 0, nil)
	check("to a full one", files, full, 1, nil)
	check("from a full one", full, files, 1, nil)
	w.Get = func(context.Context, io.Writer) error { return fault.New(fault.Unavailable, "the worker went away") }
	check("with a worker that goes away", full, files, 0, fault.New(fault.Unavailable, "it"))
}
