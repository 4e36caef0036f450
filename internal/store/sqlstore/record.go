package sqlstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
)

const (
	recordInsert = `INSERT INTO record (job_id, attempt, body, artifacts, blobs) VALUES ($1, $2, $3, $4, $5)`
	ofAttempt    = ` FROM record WHERE job_id = $1 AND attempt = $2`
	ofNewest     = ` FROM record WHERE job_id = $1 ORDER BY attempt DESC LIMIT 1`
)

type records struct{ *Tx }

func (t records) Add(ctx context.Context, r evidence.Record, artifacts []evidence.Artifact, blobs map[string][]byte) error {
	artifacts = slices.SortedFunc(slices.Values(artifacts), func(a, b evidence.Artifact) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(artifacts); i++ {
		if artifacts[i].Name == artifacts[i-1].Name {
			return fault.New(fault.Conflict, "two artifacts of job %q have the name %q", r.JobID, artifacts[i].Name)
		}
	}
	r.Started, r.Ended = r.Started.UTC(), r.Ended.UTC()
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	list, err := json.Marshal(artifacts)
	if err != nil {
		return fmt.Errorf("encode artifacts: %w", err)
	}
	packed, err := packBlobs(blobs)
	if err != nil {
		return err
	}
	ok, err := t.q.Add(ctx, recordInsert, r.JobID, r.Attempt, string(body), string(list), packed)
	if err != nil {
		return fmt.Errorf("add record: %w", err)
	}
	if !ok {
		return fault.New(fault.Conflict, "try %d of job %q has its record", r.Attempt, r.JobID).WithCode("record_exists")
	}
	return nil
}

func (t records) Get(ctx context.Context, jobID string, attempt int) (r evidence.Record, err error) {
	text, ok, err := t.read(ctx, "body", jobID, attempt)
	if err == nil && ok {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return evidence.Record{}, fmt.Errorf("get record: %w", err)
	}
	if !ok {
		return evidence.Record{}, fault.New(fault.NotFound, "there is no evidence of job %q yet", jobID)
	}
	return r, nil
}

func (t records) Artifacts(ctx context.Context, jobID string, attempt int) (list []evidence.Artifact, err error) {
	text, ok, err := t.read(ctx, "artifacts", jobID, attempt)
	if err == nil && ok {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("list artifacts: %w", err)
	}
	return list, nil
}

func (t records) Blob(ctx context.Context, jobID string, attempt int, sha256 string) ([]byte, bool, error) {
	packed, _, err := t.read(ctx, "blobs", jobID, attempt)
	if err != nil {
		return nil, false, fmt.Errorf("read blob: %w", err)
	}
	return findBlob(packed, sha256)
}

// read reads a column of a record; ok says whether there is one.
func (t records) read(ctx context.Context, column, jobID string, attempt int) (value []byte, ok bool, err error) {
	query, args := `SELECT `+column+ofAttempt, []any{jobID, attempt}
	if attempt == 0 {
		query, args = `SELECT `+column+ofNewest, []any{jobID}
	}
	return one(ctx, t.Tx, func(row Row) (value []byte, err error) {
		err = row.Scan(&value)
		return value, err
	}, query, args...)
}

// packBlobs writes blobs one after the other, each with its digest and its
// length before it.
func packBlobs(blobs map[string][]byte) ([]byte, error) {
	packed := []byte{}
	for _, digest := range slices.Sorted(maps.Keys(blobs)) {
		sum, err := hex.DecodeString(digest)
		if err != nil || len(sum) != sha256.Size {
			return nil, fault.New(fault.Invalid, "%q is not the digest of a blob", digest)
		}
		packed = append(packed, sum...)
		packed = binary.BigEndian.AppendUint32(packed, uint32(len(blobs[digest]))) //nolint:gosec // bounded by MaxInline
		packed = append(packed, blobs[digest]...)
	}
	return packed, nil
}

// blobDigest is how many bytes the digest before a packed blob has.
const blobDigest = sha256.Size

// findBlob looks for a blob in what packBlobs wrote.
func findBlob(packed []byte, digest string) ([]byte, bool, error) {
	for len(packed) > 0 {
		size, err := blobSize(packed)
		if err != nil {
			return nil, false, err
		}
		if hex.EncodeToString(packed[:blobDigest]) == digest {
			return packed[blobDigest+4 : size], true, nil
		}
		packed = packed[size:]
	}
	return nil, false, nil
}

// blobSize returns how many bytes the first packed blob takes, with what stands
// before it.
func blobSize(packed []byte) (int, error) {
	const head = blobDigest + 4
	if len(packed) >= head {
		if size := int(binary.BigEndian.Uint32(packed[blobDigest:head])); size <= len(packed)-head {
			return head + size, nil
		}
	}
	return 0, errors.New("the blobs of a record are cut short")
}
