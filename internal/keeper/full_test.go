package keeper

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
)

// TestSnapshotOfFilesIsNotEnough says what was asked for, and not something else.
func TestSnapshotOfFilesIsNotEnough(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	w := &dispatchtest.Scripted{}
	w.Open, w.Tell = w.Boxes.OpenSandbox, s.boxes.Tell
	w.Snapshot = func(ctx context.Context, _ live.SnapshotOrder) (live.SnapshotMade, error) {
		data := archive(t, map[string]string{"a": "one"})
		digest := blob.Digest(data)
		return live.SnapshotMade{SHA256: digest, Bytes: int64(len(data))}, s.Blobs.Put(ctx, digest, int64(len(data)), bytes.NewReader(data))
	}
	s.host = w
	x := s.create(live.Request{})
	snap, err := s.SnapshotSandbox(as("o"), x.ID, live.Files, "")
	if err != nil {
		t.Fatal(err)
	}
	_, restored := s.RestoreSandbox(as("o"), x.ID, snap.ID)
	_, forked := s.ForkSandbox(as("o"), x.ID, live.Fork{Snapshot: snap.ID, Count: 1})
	for do, err := range map[string]error{"restore": restored, "fork": forked} {
		if fault.CodeOf(err) != "not_full" || !strings.Contains(err.Error(), do+" from one that is full") {
			t.Errorf("%s: %v", do, err)
		}
	}
}
