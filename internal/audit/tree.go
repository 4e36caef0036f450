package audit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// Tree is the right edge of the Merkle tree over all records: enough to add
// leaves and to tell the root, in a few hashes. The zero Tree is empty.
type Tree struct {
	Size  int64
	peaks []tlog.Hash // of the full subtrees, the largest first
}

// ReadTree is the inverse of Peaks.
func ReadTree(size int64, peaks []byte) (Tree, error) {
	hashes, err := ReadHashes(peaks)
	if err != nil {
		return Tree{}, err
	}
	if size < 0 || len(hashes) != bits.OnesCount64(uint64(size)) {
		return Tree{}, fmt.Errorf("the tree of the audit log is damaged: size %d with %d peaks", size, len(hashes))
	}
	return Tree{Size: size, peaks: hashes}, nil
}

// Peaks returns the tree's hashes, one after the other.
func (t Tree) Peaks() []byte { return WriteHashes(t.peaks) }

// Add adds a leaf and returns the hashes that are complete with it, from the
// leaf upwards: those that tlog keeps for the record.
func (t *Tree) Add(leaf tlog.Hash) []tlog.Hash {
	complete := []tlog.Hash{leaf}
	for n := t.Size; n&1 == 1; n >>= 1 {
		last := len(t.peaks) - 1
		leaf = tlog.NodeHash(t.peaks[last], leaf)
		t.peaks = t.peaks[:last]
		complete = append(complete, leaf)
	}
	t.peaks = append(t.peaks, leaf)
	t.Size++
	return complete
}

// Root returns the hash of the whole tree.
func (t Tree) Root() tlog.Hash {
	if len(t.peaks) == 0 {
		return sha256.Sum256(nil)
	}
	last := len(t.peaks) - 1
	root := t.peaks[last]
	for i := last - 1; i >= 0; i-- {
		root = tlog.NodeHash(t.peaks[i], root)
	}
	return root
}

// Place says where the hash with an index of tlog's is kept: with which record,
// and how many levels above its leaf.
func Place(index int64) (seq int64, level int) {
	level, n := tlog.SplitStoredHashIndex(index)
	return (n + 1) << level, level
}

// WriteHashes writes hashes one after the other.
func WriteHashes(hashes []tlog.Hash) []byte {
	b := make([]byte, 0, len(hashes)*tlog.HashSize)
	for _, h := range hashes {
		b = append(b, h[:]...)
	}
	return b
}

// ReadHashes is the inverse of WriteHashes.
func ReadHashes(b []byte) ([]tlog.Hash, error) {
	if len(b)%tlog.HashSize != 0 {
		return nil, errors.New("the hashes of the audit log are damaged")
	}
	hashes := make([]tlog.Hash, len(b)/tlog.HashSize)
	for i := range hashes {
		copy(hashes[i][:], b[i*tlog.HashSize:])
	}
	return hashes, nil
}
