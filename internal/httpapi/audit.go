package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/notary"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// Auditor looks after the audit. Each call finds its caller in ctx, as with
// Manager.
type Auditor interface {
	AuditRecords(ctx context.Context, f audit.Filter, limit int) ([]audit.Record, error)
	AuditCheckpoint(ctx context.Context) (signed, key string, err error)
	ProveRecord(ctx context.Context, seq, size int64) (notary.Inclusion, error)
	ProveConsistency(ctx context.Context, from, to int64) (notary.Consistency, error)
	VerifyAudit(ctx context.Context) (notary.Report, error)
	ExportAudit(ctx context.Context, w io.Writer) error
	ExportAuditCSV(ctx context.Context, w io.Writer, f audit.Filter) error
	PurgeAudit(ctx context.Context, reason string) (int64, error)
	// Deny records that a caller was refused, DenyKey that a key was.
	Deny(ctx context.Context, r notary.Refusal)
	DenyKey(ctx context.Context, r notary.Refusal)
}

// AuditRecordBody is a record of the audit.
type AuditRecordBody struct {
	Seq       int64             `json:"seq" doc:"Its number, from 1 without gaps."`
	Timestamp time.Time         `json:"timestamp"`
	Category  audit.Category    `json:"category" enum:"policy,violation,killswitch,quarantine,escalation,access,config,alert"`
	Severity  audit.Severity    `json:"severity" enum:"info,warning,critical"`
	Action    string            `json:"action" doc:"What was done or decided." example:"job.cancel"`
	Message   string            `json:"message"`
	Source    string            `json:"source" doc:"The part of Aurea that decided."`
	Actor     string            `json:"actor" doc:"Who asked."`
	Target    string            `json:"target" doc:"The id of what it was done to."`
	Outcome   string            `json:"outcome" doc:"done, denied or failed."`
	RequestID string            `json:"request_id"`
	Before    json.RawMessage   `json:"before" doc:"How the target stood; null where nobody said."`
	After     json.RawMessage   `json:"after" doc:"How it stands; null where nobody said."`
	Metadata  map[string]string `json:"metadata"`
	Hash      string            `json:"hash" doc:"Of the canonical form: its leaf in the tree, in base64."`
}

func auditRecordBody(r *audit.Record) AuditRecordBody {
	b := AuditRecordBody{
		Seq: r.Seq, Timestamp: r.At, Category: r.Category, Severity: r.Severity, Action: r.Action, Message: r.Message, Source: r.Source, Actor: r.Actor,
		Target: r.Target, Outcome: r.Outcome, RequestID: r.RequestID, Before: r.Before, After: r.After, Metadata: r.Metadata, Hash: r.Leaf().String(),
	}
	if b.Metadata == nil {
		b.Metadata = map[string]string{}
	}
	return b
}

// AuditReportBody is what a verification came to.
type AuditReportBody struct {
	OK          bool           `json:"ok"`
	Size        int64          `json:"size" doc:"Records that there ever were."`
	Purged      int64          `json:"purged" doc:"Of those, the ones of which only the hashes are left."`
	Checkpoints int64          `json:"checkpoints" doc:"Signed checkpoints that the log was held against."`
	Confirmed   int64          `json:"confirmed" doc:"Up to this record a checkpoint confirms the log."`
	Root        string         `json:"root" doc:"The hash of the tree, in base64."`
	Finding     *audit.Finding `json:"finding" doc:"The first record that is not what it was, or the range of which a checkpoint tells; null where all is well."`
}

// AuditProofBody proves that a record is in the log of a size, or that the log
// of one size begins with that of another.
type AuditProofBody struct {
	Seq      int64    `json:"seq,omitempty"`
	Leaf     string   `json:"leaf,omitempty" doc:"The hash of the record."`
	From     int64    `json:"from,omitempty"`
	FromRoot string   `json:"from_root,omitempty"`
	Size     int64    `json:"size"`
	Root     string   `json:"root"`
	Proof    []string `json:"proof" nullable:"false" doc:"Hashes in base64, as in RFC 6962."`
}

// AuditCheckpointBody is a signed checkpoint.
type AuditCheckpointBody struct {
	Checkpoint string `json:"checkpoint" doc:"A signed note: the name of the log, its size, its root, and the signature. Keep it where nobody reaches it who can write the database."`
	Key        string `json:"key" doc:"The public key that checks it."`
}

// PurgeBody says why.
type PurgeBody struct {
	Reason string `json:"reason" minLength:"1" maxLength:"1000" doc:"Why, for the record."`
}

// PurgedBody says how many records went.
type PurgedBody struct {
	Purged int64 `json:"purged"`
}

// AuditSearch chooses records.
type AuditSearch struct {
	Exchange
	Category  string    `query:"category" maxLength:"200" doc:"Only these categories, separated by commas." example:"policy,violation"`
	Severity  string    `query:"severity" maxLength:"100" doc:"Only these severities, separated by commas."`
	Action    string    `query:"action" maxLength:"2000" doc:"Only these actions, separated by commas."`
	Actor     string    `query:"actor" maxLength:"256" doc:"Only of this caller."`
	Target    string    `query:"target" maxLength:"256" doc:"Only about this."`
	Outcome   string    `query:"outcome" maxLength:"100" doc:"Only with this outcome."`
	RequestID string    `query:"request_id" maxLength:"256" doc:"Only of this request."`
	From      time.Time `query:"from" doc:"Only from this moment on."`
	To        time.Time `query:"to" doc:"Only before this moment."`
	After     int64     `query:"after" minimum:"0" doc:"Only records with a larger seq."`
	Before    int64     `query:"before" minimum:"0" doc:"Only records with a smaller seq; 0 is all."`
}

type auditListInput struct {
	AuditSearch
	Order string `query:"order" enum:"newest,oldest" default:"newest" doc:"Which come first."`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type auditListOutput struct {
	Link string            `header:"Link"`
	Body []AuditRecordBody `nullable:"false"`
}

type auditProofInput struct {
	Exchange
	Seq  int64 `query:"seq" minimum:"0" doc:"The record to prove."`
	From int64 `query:"from" minimum:"0" doc:"Or the size from which to prove that the log only grew."`
	Size int64 `query:"size" minimum:"0" doc:"The size of the log to prove it in; 0 is all of it."`
}

type auditExportInput struct {
	AuditSearch
	Format string `query:"format" enum:"jsonl,csv" default:"jsonl" doc:"jsonl is the whole log with its checkpoints, to be verified offline; csv is a table, of what the search finds."`
}

type (
	auditReportOutput     struct{ Body AuditReportBody }
	auditProofOutput      struct{ Body AuditProofBody }
	auditCheckpointOutput struct{ Body AuditCheckpointBody }
	purgedOutput          struct{ Body PurgedBody }
)

func (a *API) registerAudit() {
	get := func(path, id, summary, detail string) route {
		return route{method: http.MethodGet, path: "/audit" + path, action: policy.Audit, id: id, tag: "audit", summary: summary, detail: detail}
	}
	register(a, get("", "listAudit", "Search the audit", "Newest first, with the next page in the Link header."), a.listAudit)
	register(a, get("/verify", "verifyAudit", "Verify the audit", "Reads the whole log, and holds it against every checkpoint that was signed, the last of which lies outside the database."), a.verifyAudit)
	register(a, get("/proof", "proveAudit", "Prove a record, or that the log only grew", "With seq, that the record is in the log; with from, that the log of size begins with that of from. Anybody can check it against a checkpoint."), a.proveAudit)
	register(a, get("/checkpoint", "getAuditCheckpoint", "Get a signed checkpoint of the audit", "Of all records that there are. 409 audit_tampered where the log is not what was signed before."), a.auditCheckpoint)
	export := get("/export", "exportAudit", "Export the audit", "As lines of JSON for `aurea audit verify`, or as a table.")
	export.answers = []string{"application/jsonl", "text/csv"}
	register(a, export, a.exportAudit)
	register(a, route{
		method: http.MethodPost, path: "/audit/purge", action: policy.Purge, id: "purgeAudit", tag: "audit", summary: "Remove the records whose time is over", body: PurgeBody{},
		detail: "Their hashes stay, so that the log can be verified as before. It is a record itself. 403 retention while none is old enough.",
	}, a.purgeAudit)
}

// auditor returns who looks after the audit.
func (a *API) auditor() (Auditor, error) {
	if a.cfg.Audit == nil {
		return nil, fault.New(fault.Unavailable, "This server keeps no audit.")
	}
	return a.cfg.Audit, nil
}

func (in *AuditSearch) filter() (f audit.Filter, err error) {
	f = audit.Filter{Actor: in.Actor, Target: in.Target, Outcome: in.Outcome, RequestID: in.RequestID, From: in.From, To: in.To, After: in.After, Before: in.Before}
	for _, one := range []struct{ name, value string }{{"actor", in.Actor}, {"target", in.Target}, {"outcome", in.Outcome}, {"request_id", in.RequestID}} {
		if err := checkPrintable("query."+one.name, one.value); err != nil {
			return f, err
		}
	}
	if f.Actions, err = words("query.action", in.Action); err != nil {
		return f, err
	}
	if f.Categories, err = known("query.category", in.Category, audit.Categories()); err != nil {
		return f, err
	}
	f.Severities, err = known("query.severity", in.Severity, audit.Severities())
	return f, err
}

// known splits a list of words that must be among those that there are.
func known[T ~string](field, list string, all []T) (out []T, err error) {
	split, err := words(field, list)
	for _, word := range split {
		if !slices.Contains(all, T(word)) {
			return nil, fault.Field(field, "there is no %q; there are %v", clip(word, 40), all)
		}
		out = append(out, T(word))
	}
	return out, err
}

func (a *API) listAudit(ctx context.Context, in *auditListInput) (*auditListOutput, error) {
	auditor, err := a.auditor()
	if err != nil {
		return nil, err
	}
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
	f.Newest = in.Order == "newest"
	list, err := auditor.AuditRecords(ctx, f, in.Limit+1)
	if err != nil {
		return nil, err
	}
	out := &auditListOutput{Body: []AuditRecordBody{}}
	if len(list) > in.Limit || store.Full(list, (*audit.Record).Bytes) {
		list = list[:min(len(list), in.Limit)]
		next := "after"
		if f.Newest {
			next = "before"
		}
		out.Link = nextLink(in.r.URL, next, strconv.FormatInt(list[len(list)-1].Seq, 10))
	}
	for i := range list {
		out.Body = append(out.Body, auditRecordBody(&list[i]))
	}
	return out, nil
}

func (a *API) verifyAudit(ctx context.Context, _ *struct{}) (*auditReportOutput, error) {
	auditor, err := a.auditor()
	if err != nil {
		return nil, err
	}
	r, err := auditor.VerifyAudit(ctx)
	if err != nil {
		return nil, err
	}
	return &auditReportOutput{Body: AuditReportBody{
		OK: r.Finding == nil, Size: r.Size, Purged: r.Purged, Checkpoints: r.Checkpoints, Confirmed: r.Confirmed, Root: r.Root.String(), Finding: r.Finding,
	}}, nil
}

func (a *API) proveAudit(ctx context.Context, in *auditProofInput) (*auditProofOutput, error) {
	auditor, err := a.auditor()
	if err != nil {
		return nil, err
	}
	var b AuditProofBody
	switch {
	case (in.Seq == 0) == (in.From == 0):
		return nil, fault.Field("query.seq", "say either seq or from")
	case in.Seq != 0:
		p, err := auditor.ProveRecord(ctx, in.Seq, in.Size)
		if err != nil {
			return nil, err
		}
		b = AuditProofBody{Seq: p.Seq, Leaf: p.Leaf.String(), Size: p.Size, Root: p.Root.String(), Proof: []string{}}
		for _, h := range p.Proof {
			b.Proof = append(b.Proof, h.String())
		}
	default:
		p, err := auditor.ProveConsistency(ctx, in.From, in.Size)
		if err != nil {
			return nil, err
		}
		b = AuditProofBody{From: p.From, FromRoot: p.FromRoot.String(), Size: p.To, Root: p.ToRoot.String(), Proof: []string{}}
		for _, h := range p.Proof {
			b.Proof = append(b.Proof, h.String())
		}
	}
	return &auditProofOutput{Body: b}, nil
}

func (a *API) auditCheckpoint(ctx context.Context, _ *struct{}) (*auditCheckpointOutput, error) {
	auditor, err := a.auditor()
	if err != nil {
		return nil, err
	}
	signed, key, err := auditor.AuditCheckpoint(ctx)
	if err != nil {
		return nil, err
	}
	return &auditCheckpointOutput{Body: AuditCheckpointBody{Checkpoint: signed, Key: key}}, nil
}

func (a *API) exportAudit(ctx context.Context, in *auditExportInput) (*huma.StreamResponse, error) {
	auditor, err := a.auditor()
	if err != nil {
		return nil, err
	}
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
	content, write := "text/csv; charset=utf-8", func(w io.Writer) error { return auditor.ExportAuditCSV(ctx, w, f) }
	if in.Format == "jsonl" {
		if !reflect.DeepEqual(f, audit.Filter{}) {
			return nil, fault.Field("query.format", "an export as jsonl has the whole log; only csv can be of a part")
		}
		content, write = "application/jsonl", func(w io.Writer) error { return auditor.ExportAudit(ctx, w) }
	}
	leave, err := a.streams.enter(ctx)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		defer leave()
		out := &lateWriter{slow: newSlowWriter(in.w), begin: func(h http.Header) { h.Set("Content-Type", content) }}
		defer out.slow.done()
		if err := write(out); err != nil {
			if !out.begun {
				a.refuse(in.w, in.r, err)
				return
			}
			guard.NoteError(ctx, err)
			panic(http.ErrAbortHandler) //nolint:forbidigo // the only way to say that the stream is cut short
		}
		out.start()
	}}, nil
}

type purgeInput struct{ Exchange }

func (a *API) purgeAudit(ctx context.Context, in *purgeInput) (*purgedOutput, error) {
	auditor, err := a.auditor()
	if err != nil {
		return nil, err
	}
	var b PurgeBody
	if err := in.into(&b); err != nil {
		return nil, err
	}
	if len(b.Reason) > maxReason || b.Reason == "" {
		return nil, fault.Field("reason", "must have 1 to %d bytes", maxReason)
	}
	n, err := auditor.PurgeAudit(ctx, b.Reason)
	if err != nil {
		return nil, err
	}
	return &purgedOutput{Body: PurgedBody{Purged: n}}, nil
}
