package audit

import (
	"encoding/json"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// PurgeAction is what the record of a purge says was done. Its After has the
// number of the last record that went, as a Purged.
const PurgeAction = "audit.purge"

// Purged is the After of a purge.
type Purged struct {
	Through int64 `json:"through"`
}

// Finding is where the log is not what it was: at record First, or, where only
// a checkpoint tells, somewhere from First to Last.
type Finding struct {
	First   int64  `json:"first"`
	Last    int64  `json:"last"`
	Problem string `json:"problem"`
}

// Error implements error.
func (f *Finding) Error() string {
	if f.First == f.Last {
		return fmt.Sprintf("record %d: %s", f.First, f.Problem)
	}
	return fmt.Sprintf("records %d to %d: %s", f.First, f.Last, f.Problem)
}

// Entry is one place of a log that is verified: a record with the hash that
// was kept for it, or the hash alone of one that was purged.
type Entry struct {
	Seq    int64
	Leaf   tlog.Hash
	Record *Record // nil where it was purged
}

// Verifier checks a log, entry by entry, against checkpoints. It stops at the
// first thing that is wrong: every method returns that *Finding from then on.
type Verifier struct {
	tree        Tree
	good        int64 // up to here a checkpoint has confirmed it
	checkpoints []Checkpoint
	purged      int64 // the last entry without a record
	announced   int64 // what records of purges tell
	bad         *Finding
}

// NewVerifier returns one that begins behind a tree that is known to be good;
// the zero Tree is the beginning.
func NewVerifier(start Tree) *Verifier {
	start.peaks = slices.Clone(start.peaks)
	return &Verifier{tree: start, good: start.Size, purged: start.Size, announced: start.Size}
}

// Trust adds a checkpoint to hold the log against, before its size is passed.
func (v *Verifier) Trust(c Checkpoint) error {
	switch {
	case v.bad != nil:
		return v.bad
	case c.Size > v.tree.Size:
		v.checkpoints = append(v.checkpoints, c)
		return nil
	case c.Size == v.tree.Size:
		return v.hold(c)
	default:
		return fmt.Errorf("the checkpoint of size %d comes too late: %d records were read", c.Size, v.tree.Size)
	}
}

// Add checks the next entry.
func (v *Verifier) Add(e Entry) error {
	if v.bad != nil {
		return v.bad
	}
	next := v.tree.Size + 1
	switch {
	case e.Seq > next:
		return v.fail(next, e.Seq-1, fmt.Sprintf("missing: record %d follows on %d", e.Seq, next-1))
	case e.Seq < next:
		return v.fail(next, next, fmt.Sprintf("record %d stands in its place", e.Seq))
	case e.Record == nil && v.purged != next-1:
		return v.fail(next, next, "missing: only its hash is left, and what is before it was not purged")
	case e.Record == nil:
		v.purged = next
	case e.Record.Seq != next:
		return v.fail(next, next, fmt.Sprintf("it says that it is record %d", e.Record.Seq))
	case e.Record.Leaf() != e.Leaf:
		return v.fail(next, next, "it was changed: it does not have the hash that was kept for it")
	case e.Record.Action == PurgeAction:
		var p Purged
		if json.Unmarshal(e.Record.After, &p) == nil && p.Through < next {
			v.announced = max(v.announced, p.Through)
		}
	}
	v.tree.Add(e.Leaf)
	for _, c := range v.checkpoints {
		if c.Size == v.tree.Size {
			if err := v.hold(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// hold holds the tree as it is now against a checkpoint of its size.
func (v *Verifier) hold(c Checkpoint) error {
	if v.tree.Root() != c.Root {
		return v.fail(min(v.good+1, max(c.Size, 1)), max(c.Size, 1), fmt.Sprintf("not what was signed in the checkpoint of size %d", c.Size))
	}
	v.good = v.tree.Size
	return nil
}

// Finish checks what can be told only at the end: that no checkpoint knows of
// more, and that what was purged was purged by somebody.
func (v *Verifier) Finish() error {
	if v.bad != nil {
		return v.bad
	}
	longest := int64(0)
	for _, c := range v.checkpoints {
		longest = max(longest, c.Size)
	}
	if longest > v.tree.Size {
		return v.fail(v.tree.Size+1, longest, fmt.Sprintf("missing: a checkpoint of size %d was signed, and none confirms what is there behind record %d", longest, v.good))
	}
	if v.purged > v.announced {
		return v.fail(v.announced+1, v.purged, "missing: no record says that they were purged")
	}
	return nil
}

// Tree returns the tree over what was added.
func (v *Verifier) Tree() Tree { return v.tree }

// Confirmed returns up to which record a checkpoint has confirmed the log.
func (v *Verifier) Confirmed() int64 { return v.good }

func (v *Verifier) fail(first, last int64, problem string) error {
	v.bad = &Finding{First: first, Last: last, Problem: problem}
	return v.bad
}
