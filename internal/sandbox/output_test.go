package sandbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"regexp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTallyKeepsTheBeginning feeds frames as only a broken driver would send
// them: what is kept must still be the true beginning of the stream.
func TestTallyKeepsTheBeginning(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		stream := rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "stream")
		limit := rapid.Int64Range(1, 250).Draw(t, "limit")
		tally := newTally(limit)
		var kept []byte
		var farthest int64
		whole := true // every frame so far joined what came before
		for range rapid.IntRange(0, 20).Draw(t, "frames") {
			from := rapid.IntRange(0, len(stream)).Draw(t, "from")
			to := rapid.IntRange(from, len(stream)).Draw(t, "to")
			whole = whole && (int64(from) <= farthest || from == to)
			if from < to { // an empty frame says nothing
				farthest = max(farthest, int64(to))
			}
			if f, ok := tally.take(Frame{Stream: Stdout, Offset: int64(from), Data: stream[from:to]}); ok {
				if f.Offset != int64(len(kept)) {
					t.Fatalf("a frame at %d after %d bytes were kept", f.Offset, len(kept))
				}
				kept = append(kept, f.Data...)
				tally.keep(f)
			}
		}
		out := tally.output()
		if !bytes.HasPrefix(stream, kept) || out.Kept != int64(len(kept)) || out.Kept > limit {
			t.Fatalf("kept %d (%d) of %v under %d", len(kept), out.Kept, out, limit)
		}
		if whole && (out.Seen != farthest || out.Kept != min(farthest, limit) || out.Truncated != (farthest > limit)) {
			t.Fatalf("%+v after %d whole bytes under %d", out, farthest, limit)
		}
		if !out.Truncated && out.Seen != out.Kept {
			t.Fatalf("%+v hides a loss", out)
		}
		if sum := sha256.Sum256(kept); out.SHA256 != hex.EncodeToString(sum[:]) {
			t.Fatalf("the digest is not of what was kept")
		}
	})
}

func TestTallyDoesNotBelieveOffsets(t *testing.T) {
	t.Parallel()
	for _, offset := range []int64{-1, math.MinInt64, math.MaxInt64} {
		tally := newTally(100)
		if _, ok := tally.take(Frame{Stream: Stdout, Offset: offset, Data: []byte("x")}); ok {
			t.Errorf("a frame at %d was kept", offset)
		}
		if out := tally.output(); out.Seen != 0 || !out.Truncated {
			t.Errorf("offset %d gives %+v", offset, out)
		}
	}
}

func TestIDsAreSortedAndPlain(t *testing.T) {
	t.Parallel()
	plain := regexp.MustCompile(`^[a-z0-9]{26}$`)
	ids := make([]string, 1000)
	for i := range ids {
		id, err := NewID()
		if err != nil {
			t.Fatal(err)
		}
		if !plain.MatchString(id) {
			t.Fatalf("%q is not plain", id)
		}
		if err := (Spec{ID: id}).Validate(); err != nil {
			t.Fatal(err)
		}
		ids[i] = id
	}
	if !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
		t.Error("ids are not in the order of their making, or not unique")
	}
}
