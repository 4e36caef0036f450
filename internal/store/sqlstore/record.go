package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
)

const (
	recordInsert   = `INSERT INTO record (job_id, attempt, body) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`
	recordGet      = `SELECT body FROM record WHERE job_id = $1 AND attempt = $2`
	recordNewest   = `SELECT body FROM record WHERE job_id = $1 ORDER BY attempt DESC LIMIT 1`
	artifactWidth  = 5 // columns
	artifactInsert = `INSERT INTO artifact (job_id, attempt, name, sha256, bytes) `
	artifactSelect = `SELECT name, sha256, bytes FROM artifact WHERE job_id = $1 AND attempt = `
	// artifactsNewest goes by the newest record, which may have left nothing.
	artifactsNewest = artifactSelect +
		`(SELECT attempt FROM record WHERE job_id = $1 ORDER BY attempt DESC LIMIT 1) ORDER BY name`
	artifactsOf = artifactSelect + `$2 ORDER BY name`
)

type records struct{ *Tx }

func (t records) Add(ctx context.Context, r evidence.Record, artifacts []evidence.Artifact) error {
	r.Started, r.Ended = r.Started.UTC(), r.Ended.UTC()
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	n, err := t.q.Exec(ctx, recordInsert, r.JobID, r.Attempt, string(body))
	if err != nil {
		return fmt.Errorf("add record: %w", err)
	}
	if n == 0 {
		return fault.New(fault.Conflict, "try %d of job %q has its record", r.Attempt, r.JobID).WithCode("record_exists")
	}
	for part := range slices.Chunk(artifacts, maxRows) {
		args := make([]any, 0, len(part)*artifactWidth)
		for _, a := range part {
			args = append(args, r.JobID, r.Attempt, a.Name, a.SHA256, a.Bytes)
		}
		n, err := t.q.Exec(ctx, artifactInsert+values(len(part), artifactWidth)+` ON CONFLICT DO NOTHING`, args...)
		if err != nil {
			return fmt.Errorf("add artifacts: %w", err)
		}
		if n != int64(len(part)) {
			return fault.New(fault.Conflict, "two artifacts of job %q have the name %q", r.JobID, doubled(artifacts))
		}
	}
	return nil
}

// doubled returns a name that comes twice.
func doubled(artifacts []evidence.Artifact) string {
	seen := make(map[string]bool, len(artifacts))
	for _, a := range artifacts {
		if seen[a.Name] {
			return a.Name
		}
		seen[a.Name] = true
	}
	return ""
}

func (t records) Get(ctx context.Context, jobID string, attempt int) (evidence.Record, error) {
	query, args := recordGet, []any{jobID, attempt}
	if attempt == 0 {
		query, args = recordNewest, []any{jobID}
	}
	r, ok, err := one(ctx, t.Tx, scanRecord, query, args...)
	if err != nil {
		return evidence.Record{}, fmt.Errorf("get record: %w", err)
	}
	if !ok {
		return evidence.Record{}, fault.New(fault.NotFound, "there is no evidence of job %q yet", jobID)
	}
	return r, nil
}

func (t records) Artifacts(ctx context.Context, jobID string, attempt int) ([]evidence.Artifact, error) {
	query, args := artifactsOf, []any{jobID, attempt}
	if attempt == 0 {
		query, args = artifactsNewest, []any{jobID}
	}
	list, err := all(ctx, t.Tx, func(rows *sql.Rows) (a evidence.Artifact, err error) {
		err = rows.Scan(&a.Name, &a.SHA256, &a.Bytes)
		return a, err
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list artifacts: %w", err)
	}
	return list, nil
}

func scanRecord(rows *sql.Rows) (r evidence.Record, err error) {
	var body []byte
	if err := rows.Scan(&body); err != nil {
		return r, fmt.Errorf("scan record: %w", err)
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return r, fmt.Errorf("decode record: %w", err)
	}
	return r, nil
}
