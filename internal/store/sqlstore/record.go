package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
)

const (
	recordInsert = `INSERT INTO record (job_id, attempt, body, artifacts) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`
	ofAttempt    = ` FROM record WHERE job_id = $1 AND attempt = $2`
	ofNewest     = ` FROM record WHERE job_id = $1 ORDER BY attempt DESC LIMIT 1`
)

type records struct{ *Tx }

func (t records) Add(ctx context.Context, r evidence.Record, artifacts []evidence.Artifact) error {
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
	n, err := t.q.Exec(ctx, recordInsert, r.JobID, r.Attempt, string(body), string(list))
	if err != nil {
		return fmt.Errorf("add record: %w", err)
	}
	if n == 0 {
		return fault.New(fault.Conflict, "try %d of job %q has its record", r.Attempt, r.JobID).WithCode("record_exists")
	}
	return nil
}

func (t records) Get(ctx context.Context, jobID string, attempt int) (r evidence.Record, err error) {
	ok, err := t.read(ctx, "body", jobID, attempt, &r)
	if err != nil {
		return evidence.Record{}, fmt.Errorf("get record: %w", err)
	}
	if !ok {
		return evidence.Record{}, fault.New(fault.NotFound, "there is no evidence of job %q yet", jobID)
	}
	return r, nil
}

func (t records) Artifacts(ctx context.Context, jobID string, attempt int) (list []evidence.Artifact, err error) {
	if _, err := t.read(ctx, "artifacts", jobID, attempt, &list); err != nil {
		return nil, fmt.Errorf("list artifacts: %w", err)
	}
	return list, nil
}

// read reads a column of a record; ok says whether there is one.
func (t records) read(ctx context.Context, column, jobID string, attempt int, into any) (ok bool, err error) {
	query, args := `SELECT `+column+ofAttempt, []any{jobID, attempt}
	if attempt == 0 {
		query, args = `SELECT `+column+ofNewest, []any{jobID}
	}
	text, ok, err := one(ctx, t.Tx, func(rows *sql.Rows) (text []byte, err error) {
		err = rows.Scan(&text)
		return text, err
	}, query, args...)
	if err != nil || !ok {
		return false, err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("decode: %w", err)
	}
	return true, nil
}
