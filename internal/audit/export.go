package audit

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// exportLine is a line of an export: a record with its hash, the hash of one
// that was purged, or a checkpoint.
type exportLine struct {
	Hash       string          `json:"hash,omitempty"` // in base64
	Record     json.RawMessage `json:"record,omitempty"`
	Purged     int64           `json:"purged,omitempty"` // its number
	Checkpoint string          `json:"checkpoint,omitempty"`
}

// MaxLine bounds a line of an export: the canonical form of a record of the
// largest size, every byte of it escaped.
const MaxLine = 1 << 20

// WriteEntry writes an entry as a line of an export. The record is there in its
// canonical form, byte for byte.
func WriteEntry(w io.Writer, e Entry) error {
	b := append([]byte(`{"hash":"`), base64.StdEncoding.EncodeToString(e.Leaf[:])...)
	if e.Record == nil {
		b = fmt.Appendf(b, `","purged":%d}`+"\n", e.Seq)
	} else {
		b = append(append(append(b, `","record":`...), e.Record.Canonical()...), '}', '\n')
	}
	_, err := w.Write(b)
	return err
}

// WriteCheckpoint writes a signed checkpoint as a line of an export.
func WriteCheckpoint(w io.Writer, signed string) error {
	b, err := json.Marshal(exportLine{Checkpoint: signed})
	if err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// Verified is what came of the verification of an export.
type Verified struct {
	Records     int64     `json:"records"`
	Purged      int64     `json:"purged"`
	Checkpoints int       `json:"checkpoints"` // that one of the keys signed
	Confirmed   int64     `json:"confirmed"`   // up to this record a trusted checkpoint holds
	Root        tlog.Hash `json:"root"`
}

// VerifyExport reads an export of a whole log, which nobody vouches for, and
// holds it against checkpoints that the caller trusts and those in it that one
// of the keys signed. What is wrong with the log is a *Finding.
func VerifyExport(r io.Reader, trusted []Checkpoint, keys ...note.Verifier) (got Verified, err error) {
	v := NewVerifier(Tree{})
	for _, c := range trusted {
		if err := v.Trust(c); err != nil {
			return got, err
		}
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), MaxLine)
	for lines.Scan() {
		if err := got.line(v, lines.Bytes(), keys); err != nil {
			return got, err
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return got, v.fail(v.tree.Size+1, v.tree.Size+1, "its line is longer than any can be")
	case err != nil:
		return got, fmt.Errorf("read export: %w", err)
	}
	if err := v.Finish(); err != nil {
		return got, err
	}
	got.Confirmed, got.Root = v.Confirmed(), v.Tree().Root()
	return got, nil
}

// line takes one line of an export.
func (got *Verified) line(v *Verifier, line []byte, keys []note.Verifier) error {
	next := v.tree.Size + 1
	var l exportLine
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil || d.InputOffset() != int64(len(line)) {
		err = errors.Join(err, errors.New("not one JSON object"))
		return v.fail(next, next, "its line cannot be read: "+err.Error())
	}
	if l.Checkpoint != "" {
		c, signed, err := OpenCheckpoint(l.Checkpoint, keys...)
		switch {
		case err != nil:
			return v.fail(v.good+1, max(v.tree.Size, v.good+1), "the checkpoint behind them was changed: "+err.Error())
		case !signed:
			return nil // nobody vouches for it
		case c.Size < v.tree.Size:
			return v.fail(next, next, fmt.Sprintf("a checkpoint of size %d stands before it, where one of %d would", c.Size, v.tree.Size))
		}
		got.Checkpoints++
		return v.Trust(c)
	}
	leaf, err := tlog.ParseHash(l.Hash)
	if err != nil {
		return v.fail(next, next, "its hash cannot be read")
	}
	if l.Record == nil {
		got.Purged++
		return v.Add(Entry{Seq: l.Purged, Leaf: leaf})
	}
	r, err := Parse(l.Record)
	if err != nil {
		return v.fail(next, next, "it was changed: "+err.Error())
	}
	got.Records++
	return v.Add(Entry{Seq: r.Seq, Leaf: leaf, Record: &r})
}
