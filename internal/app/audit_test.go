package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/policy"
)

// asks sends a request with the key of a kind.
func (d *doors) asks(kind, method, path, body string) *httptest.ResponseRecorder {
	d.t.Helper()
	r := httptest.NewRequestWithContext(d.t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+d.keys[kind])
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	d.api.ServeHTTP(w, r)
	return w
}

// answers is asks for what must go well; it reads the answer into v.
func (d *doors) answers(kind, path string, v any) *httptest.ResponseRecorder {
	d.t.Helper()
	w := d.asks(kind, http.MethodGet, path, "")
	if w.Code != http.StatusOK {
		d.t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	if v != nil {
		if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
			d.t.Fatal(err)
		}
	}
	return w
}

type auditLine struct {
	Seq       int64  `json:"seq"`
	Action    string `json:"action"`
	Actor     string `json:"actor"`
	Target    string `json:"target"`
	RequestID string `json:"request_id"`
	Hash      string `json:"hash"`
}

// TestAuditOverHTTP searches, proves, verifies and exports what the keys and
// the rest of the table left in the audit.
func TestAuditOverHTTP(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	ctx := audit.WithRequest(policy.With(t.Context(), policy.LocalCaller()), "request-of-the-key")
	if _, _, err := d.m.manager.CreateKey(ctx, policy.KeyRequest{Kind: policy.Viewer, Name: "seen"}); err != nil {
		t.Fatal(err)
	}
	var list []auditLine
	d.answers("auditor", "/api/v1/audit?limit=1000", &list)
	if len(list) < 3 || list[0].Seq != int64(len(list)) || list[0].RequestID != "request-of-the-key" {
		t.Fatalf("got %+v", list)
	}
	// Pages, both ways, have the same records as one list.
	for order, first := range map[string]int64{"newest": list[0].Seq, "oldest": 1} {
		seen, next := 0, "/api/v1/audit?limit=2&order="+order
		for next != "" {
			var page []auditLine
			w := d.answers("director", next, &page)
			if seen == 0 && page[0].Seq != first {
				t.Errorf("%s first begins with %d", order, page[0].Seq)
			}
			seen += len(page)
			next, _, _ = strings.Cut(strings.TrimPrefix(w.Header().Get("Link"), "<"), ">")
		}
		if seen != len(list) {
			t.Errorf("%s first: %d of %d", order, seen, len(list))
		}
	}
	var found []auditLine
	d.answers("auditor", "/api/v1/audit?category=access&severity=info,warning,critical&request_id=request-of-the-key&action="+list[0].Action+"&from=2020-01-01T00:00:00Z", &found)
	if len(found) != 1 || found[0] != list[0] {
		t.Errorf("found %+v", found)
	}
	for _, bad := range []string{"?category=gossip", "?severity=loud", "?limit=0", "?from=yesterday", "?actor=%00", "/proof", "/proof?seq=1&from=1", "/export?actor=x", "?unknown=1"} {
		if w := d.asks("auditor", http.MethodGet, "/api/v1/audit"+bad, ""); w.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", bad, w.Code, w.Body)
		}
	}
	// A key that sees only an owner's things sees none of this.
	if w := d.asks("a", http.MethodGet, "/api/v1/audit", ""); w.Code != http.StatusForbidden {
		t.Errorf("a narrowed admin: %d", w.Code)
	}
	if w := d.asks("director", http.MethodPost, "/api/v1/audit/purge", `{"reason":"old"}`); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "retention") {
		t.Errorf("a purge before its time: %d %s", w.Code, w.Body)
	}
	d.answers("auditor", "/api/v1/audit?limit=1000", &list) // the refusals are in it too
	checkProofs(d, list)
}

// checkProofs checks outside what the server says.
func checkProofs(d *doors, list []auditLine) {
	d.t.Helper()
	var c struct{ Checkpoint, Key string }
	d.answers("auditor", "/api/v1/audit/checkpoint", &c)
	key, err := note.NewVerifier(c.Key)
	if err != nil {
		d.t.Fatal(err)
	}
	anchor, signed, err := audit.OpenCheckpoint(c.Checkpoint, key)
	if err != nil || !signed || anchor.Size != int64(len(list)) {
		d.t.Fatalf("the checkpoint: %+v, %t, %v", anchor, signed, err)
	}
	var p struct {
		Leaf, Root string
		Proof      tlog.RecordProof
	}
	d.answers("auditor", "/api/v1/audit/proof?seq=2", &p)
	leaf, err := tlog.ParseHash(p.Leaf)
	if err == nil {
		err = tlog.CheckRecord(p.Proof, anchor.Size, anchor.Root, 1, leaf)
	}
	if err != nil || p.Leaf != list[len(list)-2].Hash {
		d.t.Errorf("the proof of record 2: %v", err)
	}
	var grown struct {
		FromRoot string         `json:"from_root"`
		Proof    tlog.TreeProof `json:"proof"`
	}
	d.answers("auditor", "/api/v1/audit/proof?from=2", &grown)
	from, err := tlog.ParseHash(grown.FromRoot)
	if err == nil {
		err = tlog.CheckTree(grown.Proof, anchor.Size, anchor.Root, 2, from)
	}
	if err != nil {
		d.t.Errorf("the proof that it grew: %v", err)
	}
	var report struct {
		OK              bool
		Size, Confirmed int64
	}
	d.answers("auditor", "/api/v1/audit/verify", &report)
	if !report.OK || report.Size != anchor.Size || report.Confirmed != anchor.Size {
		d.t.Errorf("got %+v", report)
	}
	export := d.answers("auditor", "/api/v1/audit/export", nil).Body.Bytes()
	if got, err := audit.VerifyExport(bytes.NewReader(export), []audit.Checkpoint{anchor}, key); err != nil || got.Records != anchor.Size {
		d.t.Errorf("the export: %+v, %v", got, err)
	}
	table := d.answers("auditor", "/api/v1/audit/export?format=csv&after=1", nil).Body.String()
	if !strings.HasPrefix(table, "seq,timestamp,") || strings.Contains(table, "\n1,") || !strings.Contains(table, "\n2,") {
		d.t.Errorf("got the table %.300s", table)
	}
}

// TestControlLeavesRecords does what can be done over HTTP without a worker,
// and finds each in the audit under the id of its request.
func TestControlLeavesRecords(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	const api = "/api/v1"
	machines := "/v1/apps/" + d.ids["app"] + "/machines/" + d.ids["machine"]
	for i, act := range []struct {
		key, method, path, body string
		status                  int
		action, target, outcome string
	}{
		{"viewer", "POST", api + "/jobs/" + d.ids["job"] + "/cancel", "", 403, "deny_control", "POST " + api + "/jobs/" + d.ids["job"] + "/cancel", "denied"},
		{"worker", "GET", api + "/audit", "", 403, "deny_audit", "GET " + api + "/audit", "denied"},
		{"sandbox", "GET", api + "/audit/export", "", 403, "deny_audit", "GET " + api + "/audit/export", "denied"},
		{"operator", "POST", api + "/jobs/" + d.ids["job"] + "/assign", `{"model":"m"}`, 409, "job.assign", d.ids["job"], "denied"}, // it is a root
		{"operator", "POST", api + "/runs/" + d.ids["run"] + "/cancel", `{"reason":"why"}`, 200, "run.cancel", d.ids["run"], "done"},
		{"operator", "DELETE", api + "/snapshots/" + d.ids["snapshot"], "", 204, "snapshot.delete", d.ids["snapshot"], "done"},
		{"operator", "POST", machines + "/cordon", "", 200, "machine.updated", d.ids["machine"], "done"},
		{"admin", "DELETE", api + "/sandboxes/" + d.ids["sandbox"], "", 200, "sandbox.end", d.ids["sandbox"], "done"},
		{"operator", "POST", api + "/sessions/" + d.ids["session"] + "/stop", "", 200, "session.completed", d.ids["session"], "done"},
	} {
		id := fmt.Sprintf("request-%03d", i)
		r := httptest.NewRequestWithContext(t.Context(), act.method, act.path, strings.NewReader(act.body))
		r.Header.Set("Authorization", "Bearer "+d.keys[act.key])
		r.Header.Set("X-Request-ID", id)
		w := httptest.NewRecorder()
		d.api.ServeHTTP(w, r)
		if w.Code != act.status {
			t.Errorf("%s %s: %d %s", act.method, act.path, w.Code, w.Body)
			continue
		}
		var list []struct{ Action, Target, Outcome, Actor string }
		d.answers("auditor", api+"/audit?order=oldest&request_id="+id, &list)
		found := false
		for _, rec := range list {
			found = found || rec.Action == act.action && rec.Target == act.target && rec.Outcome == act.outcome && rec.Actor != ""
		}
		if !found {
			t.Errorf("%s %s left %+v", act.method, act.path, list)
		}
	}
	// Of those who are refused again and again, one record is enough for a while.
	for range 5 {
		d.asks("viewer", http.MethodPost, api+"/jobs/"+d.ids["job"]+"/cancel", "")
	}
	var list []auditLine
	d.answers("auditor", api+"/audit?action=deny_control", &list)
	if len(list) != 1 {
		t.Errorf("%d records of refusals", len(list))
	}
	var report struct{ OK bool }
	if d.answers("auditor", api+"/audit/verify", &report); !report.OK {
		t.Error("the audit does not verify")
	}
}
