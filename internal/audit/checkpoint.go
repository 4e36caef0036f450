package audit

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Checkpoint says what the tree of a size hashes to. Signed it is a note in
// the form that C2SP calls a checkpoint: origin, size and root, a line each.
type Checkpoint struct {
	Origin string // of the log: the name of the key that signs for it
	Size   int64
	Root   tlog.Hash
}

// MaxCheckpoint bounds a signed checkpoint.
const MaxCheckpoint = 4 << 10

// Sign returns the checkpoint as a signed note.
func (c Checkpoint) Sign(signer note.Signer) (string, error) {
	text := fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, base64.StdEncoding.EncodeToString(c.Root[:]))
	signed, err := note.Sign(&note.Note{Text: text}, signer)
	if err != nil {
		return "", fmt.Errorf("sign checkpoint: %w", err)
	}
	return string(signed), nil
}

// OpenCheckpoint reads a signed checkpoint. signed says whether one of the
// keys signed it; a signature that claims to be of one of them and is not is
// an error.
func OpenCheckpoint(text string, keys ...note.Verifier) (c Checkpoint, signed bool, err error) {
	if len(text) > MaxCheckpoint {
		return Checkpoint{}, false, errors.New("read checkpoint: it is too long")
	}
	n, err := note.Open([]byte(text), note.VerifierList(keys...))
	var unverified *note.UnverifiedNoteError
	switch {
	case errors.As(err, &unverified):
		n = unverified.Note
	case err != nil:
		return Checkpoint{}, false, fmt.Errorf("read checkpoint: %w", err)
	default:
		signed = true
	}
	c, err = readCheckpoint(n.Text)
	return c, signed, err
}

func readCheckpoint(text string) (Checkpoint, error) {
	lines := strings.SplitN(text, "\n", 4) // further lines are extensions, which nobody here knows
	if len(lines) < 4 || lines[0] == "" {
		return Checkpoint{}, errors.New("read checkpoint: it has not the three lines of one")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || size < 0 || strconv.FormatInt(size, 10) != lines[1] {
		return Checkpoint{}, fmt.Errorf("read checkpoint: %.40q is not a size", lines[1])
	}
	root, err := tlog.ParseHash(lines[2])
	if err != nil {
		return Checkpoint{}, fmt.Errorf("read checkpoint: %.60q is not a hash", lines[2])
	}
	return Checkpoint{Origin: lines[0], Size: size, Root: root}, nil
}

// TreeAt makes the tree of a size from stored hashes.
func TreeAt(size int64, read tlog.HashReader) (Tree, error) {
	var indexes []int64
	for done, left := int64(0), size; left > 0; {
		level := bits.Len64(uint64(left)) - 1
		indexes = append(indexes, tlog.StoredHashIndex(level, done>>level))
		done += 1 << level
		left -= 1 << level
	}
	peaks, err := read.ReadHashes(indexes)
	if err != nil {
		return Tree{}, err
	}
	return Tree{Size: size, peaks: peaks}, nil
}
