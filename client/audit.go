package client

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// AuditRecord is one decision or act of control.
type AuditRecord struct {
	Seq       int64             `json:"seq"`
	Timestamp time.Time         `json:"timestamp"`
	Category  string            `json:"category"`
	Severity  string            `json:"severity"`
	Action    string            `json:"action"`
	Message   string            `json:"message"`
	Source    string            `json:"source"`
	Actor     string            `json:"actor"`
	Target    string            `json:"target"`
	Outcome   string            `json:"outcome"`
	RequestID string            `json:"request_id"`
	Before    json.RawMessage   `json:"before"`
	After     json.RawMessage   `json:"after"`
	Metadata  map[string]string `json:"metadata"`
	Hash      string            `json:"hash"`
}

// AuditFilter chooses records. Zero fields choose all.
type AuditFilter struct {
	Categories, Severities, Actions []string
	Actor, Target, Outcome          string
	RequestID                       string
	From, To                        time.Time
}

func (f AuditFilter) query() url.Values {
	q := url.Values{}
	for name, list := range map[string][]string{"category": f.Categories, "severity": f.Severities, "action": f.Actions} {
		if len(list) > 0 {
			q.Set(name, strings.Join(list, ","))
		}
	}
	for name, value := range map[string]string{"actor": f.Actor, "target": f.Target, "outcome": f.Outcome, "request_id": f.RequestID} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, at := range map[string]time.Time{"from": f.From, "to": f.To} {
		if !at.IsZero() {
			q.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return q
}

// auditPage is how many records are asked for at once.
const auditPage = 500

// Audit returns the records of the audit, newest first.
func (c *Client) Audit(ctx context.Context, f AuditFilter) iter.Seq2[AuditRecord, error] {
	return func(yield func(AuditRecord, error) bool) {
		for before := int64(0); ; {
			r := get("api", "v1", "audit")
			r.query = f.query()
			r.query.Set("limit", strconv.Itoa(auditPage))
			if before > 0 {
				r.query.Set("before", strconv.FormatInt(before, 10))
			}
			var page []AuditRecord
			header, err := c.call(ctx, r, &page)
			if err != nil {
				yield(AuditRecord{}, err)
				return
			}
			for _, record := range page {
				if before = record.Seq; !yield(record, nil) {
					return
				}
			}
			if header.Get("Link") == "" || len(page) == 0 {
				return
			}
		}
	}
}

// ExportAudit returns the whole audit with its checkpoints, a line each, to be
// verified offline. It is the caller's to close.
func (c *Client) ExportAudit(ctx context.Context) (io.ReadCloser, error) {
	return c.stream(ctx, get("api", "v1", "audit", "export"))
}

// ExportAuditCSV returns the records that a filter lets through as a table. It
// is the caller's to close.
func (c *Client) ExportAuditCSV(ctx context.Context, f AuditFilter) (io.ReadCloser, error) {
	r := get("api", "v1", "audit", "export")
	r.query = f.query()
	r.query.Set("format", "csv")
	return c.stream(ctx, r)
}

// AuditCheckpoint is a signed checkpoint of the audit, and the public key that
// checks it.
type AuditCheckpoint struct {
	Checkpoint string `json:"checkpoint"`
	Key        string `json:"key"`
}

// AuditCheckpoint returns a checkpoint of all records that there are.
func (c *Client) AuditCheckpoint(ctx context.Context) (out AuditCheckpoint, err error) {
	_, err = c.call(ctx, get("api", "v1", "audit", "checkpoint"), &out)
	return out, err
}
