package e2e

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite" // to look at the database from outside

	"github.com/aurea-dev/aurea/internal/job"
)

// stored is an event as the record has it, and the parts that are looked at.
type stored struct {
	raw     string
	Seq     int64
	Type    string
	JobID   string `json:"job_id"`
	Details struct {
		From, To job.State
		Fence    int64
		Attempt  int
		Worker   string
	}
}

// UnmarshalJSON keeps the text too.
func (s *stored) UnmarshalJSON(raw []byte) error {
	type plain stored
	err := json.Unmarshal(raw, (*plain)(s))
	s.raw = string(raw)
	return err
}

// row is a job as the API shows it.
type row struct {
	ID      string
	Root    string `json:"root_job_id"`
	Status  job.State
	Outcome string
	Role    string
	Worker  string `json:"worker_id"`
	Fence   int64
	Attempt int
	Details struct {
		Snapshot string
		SHA256   string `json:"snapshot_sha256"`
	}
}

// auditor has read everything that a plant says about itself.
type auditor struct {
	*crowd
	jobs   map[string]row
	events []stored
	byJob  map[string][]stored
}

// audit reads it all and compares it with what clients were promised, and with
// itself.
func audit(t *testing.T, k *asker, c *crowd, p plant) *auditor {
	t.Helper()
	a := &auditor{crowd: c, jobs: map[string]row{}, byJob: map[string][]stored{}}
	for path := "/jobs?limit=1000"; path != ""; {
		page, err := k.ask(t.Context(), http.MethodGet, path, nil)
		var rows []row
		if err == nil {
			err = page.into(http.StatusOK, &rows)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if _, twice := a.jobs[r.ID]; twice {
				t.Errorf("job %s is listed twice", r.ID)
			}
			a.jobs[r.ID] = r
		}
		path, _, _ = strings.Cut(strings.TrimPrefix(page.header.Get("Link"), "<"), ">")
	}
	for after := int64(0); ; {
		page := c.tail(t, after)
		if len(page) == 0 {
			break
		}
		a.events = append(a.events, page...)
		after = page[len(page)-1].Seq
	}
	for _, e := range a.events {
		if e.JobID != "" {
			a.byJob[e.JobID] = append(a.byJob[e.JobID], e)
		}
	}
	a.promises(t)
	a.stream(t)
	a.stories(t)
	a.evidence(t)
	status := map[string]string{}
	for id, j := range a.jobs {
		status[id] = string(j.Status)
	}
	c.readAll(status)
	c.check(t)
	t.Logf("%d plans, %d jobs, %d events, %d breaks of the stream", len(c.kept), len(a.jobs), len(a.events), c.breaks)
	return a
}

// promises checks that what was acknowledged is there, is done, and was made
// once: the same key answers with the same ids, and nothing else exists.
func (a *auditor) promises(t *testing.T) {
	t.Helper()
	promised := map[string]string{}
	for key, p := range a.kept {
		for _, id := range append([]string{p.Root}, p.Jobs...) {
			promised[id] = key
			if j, ok := a.jobs[id]; !ok {
				t.Errorf("job %s of %s is lost", id, key)
			} else if j.Status != job.Completed || j.Outcome != "ok" {
				t.Errorf("job %s of %s is %s, %s", id, key, j.Status, j.Outcome)
			}
		}
		again, err := a.ask(t.Context(), http.MethodPost, "/prds", p.body, "Idempotency-Key", key)
		var s submission
		if err == nil {
			err = again.into(http.StatusCreated, &s)
		}
		if err != nil || again.header.Get("Idempotency-Replayed") != "true" || cmp.Diff(s, p.submission) != "" {
			t.Errorf("%s sent again: %s, %v", key, again, err)
		}
	}
	for id := range a.jobs {
		if promised[id] == "" {
			t.Errorf("job %s was promised to nobody: a plan was made twice", id)
		}
	}
}

// stream checks that the follower saw the record, all of it, once, in order.
func (a *auditor) stream(t *testing.T) {
	t.Helper()
	for i := 1; i < len(a.events); i++ {
		if a.events[i].Seq <= a.events[i-1].Seq {
			t.Errorf("event %d comes after %d", a.events[i].Seq, a.events[i-1].Seq)
		}
	}
	want := make([]streamed, 0, len(a.events))
	for _, e := range a.events {
		if e.Seq <= a.last() { // a worker's late result may be refused, and that recorded, after the follower has left
			want = append(want, streamed{e.Seq, e.raw})
		}
	}
	if diff := cmp.Diff(want, a.seen, cmp.AllowUnexported(streamed{})); diff != "" {
		t.Errorf("the record and the stream differ (-record +stream):\n%.4000s", diff)
	}
}

// stories checks that each job's events, read in order, make sense by
// themselves and lead to where the job stands.
func (a *auditor) stories(t *testing.T) {
	t.Helper()
	for id, j := range a.jobs {
		if err := tells(a.byJob[id], j); err != nil {
			t.Errorf("job %s: %v", id, err)
			for _, e := range a.byJob[id] {
				t.Logf("  %s", e.raw)
			}
		}
	}
	for id := range a.byJob {
		if _, ok := a.jobs[id]; !ok {
			t.Errorf("there are events of job %s, which does not exist", id)
		}
	}
}

// tells replays the events of one job.
func tells(events []stored, j row) error {
	var state job.State
	var fence int64
	completed := 0
	said := map[string]bool{} // what a worker reported under this lease
	for _, e := range events {
		d := e.Details
		switch {
		case e.Type == "job.created":
			if state != "" {
				return fmt.Errorf("it was created twice")
			}
			state = d.To
			continue
		case e.Type == "job.refused":
			continue
		case d.To == "":
			if state != job.InProgress {
				return fmt.Errorf("%s was reported while it was %s", e.Type, state)
			}
			if said[e.Type] {
				return fmt.Errorf("%s was recorded twice under lease %d", e.Type, fence)
			}
			said[e.Type] = true
			continue
		}
		if d.From != state || !state.Can(d.To) {
			return fmt.Errorf("event %d moves it from %s to %s, but it was %s", e.Seq, d.From, d.To, state)
		}
		state = d.To
		switch e.Type {
		case "job.claimed":
			if d.Fence <= fence {
				return fmt.Errorf("lease %d came after lease %d", d.Fence, fence)
			}
			fence, said = d.Fence, map[string]bool{}
		case "job.completed":
			completed++
			if j.ID != j.Root && d.Fence != fence {
				return fmt.Errorf("it was completed under lease %d, held under %d", d.Fence, fence)
			}
		}
	}
	switch {
	case state != j.Status:
		return fmt.Errorf("its events lead to %s, it is %s", state, j.Status)
	case completed != 1:
		return fmt.Errorf("it was completed %d times", completed)
	case j.ID == j.Root || j.Role == claimerRole:
		return nil
	}
	for _, part := range []string{"job.started", "sandbox.created", "sandbox.destroyed", "snapshot.stored"} {
		if !said[part] {
			return fmt.Errorf("the story of its last try has no %s", part)
		}
	}
	return nil
}

// evidence checks that each job has the record of the try that counts, and of
// no other, and that the snapshot that it names is what it says.
func (a *auditor) evidence(t *testing.T) {
	t.Helper()
	for id, j := range a.jobs {
		if id == j.Root {
			continue
		}
		for attempt := 1; attempt <= j.Attempt; attempt++ {
			res, err := a.ask(t.Context(), http.MethodGet, fmt.Sprintf("/jobs/%s/evidence?attempt=%d", id, attempt), nil)
			if err != nil {
				t.Fatal(err)
			}
			if j.Role == claimerRole || attempt < j.Attempt {
				if res.status != http.StatusNotFound {
					t.Errorf("job %s has evidence of try %d, which has no result: %s", id, attempt, res)
				}
				continue
			}
			a.lastTry(t, j, res)
		}
	}
}

func (a *auditor) lastTry(t *testing.T, j row, res answer) {
	t.Helper()
	var r struct {
		Attempt         int
		Fence           int64
		Worker, Verdict string
		Snapshot        struct{ Path, SHA256 string }
	}
	if err := res.into(http.StatusOK, &r); err != nil {
		t.Errorf("evidence of job %s: %v", j.ID, err)
		return
	}
	if r.Attempt != j.Attempt || r.Fence != j.Fence || r.Worker != j.Worker || r.Verdict != "ok" ||
		r.Snapshot.Path != j.Details.Snapshot || r.Snapshot.SHA256 != j.Details.SHA256 {
		t.Errorf("evidence and job differ: %+v, %+v", r, j)
	}
	if raw, err := os.ReadFile(r.Snapshot.Path); err != nil {
		t.Errorf("the snapshot of job %s: %v", j.ID, err)
	} else if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != r.Snapshot.SHA256 {
		t.Errorf("the snapshot of job %s is not what its evidence says", j.ID)
	}
	blob, err := a.ask(t.Context(), http.MethodGet, "/jobs/"+j.ID+"/snapshot", nil)
	if sum := sha256.Sum256(blob.body); err != nil || blob.status != http.StatusOK || hex.EncodeToString(sum[:]) != r.Snapshot.SHA256 {
		t.Errorf("the manager's copy of the snapshot of job %s: %d, %v", j.ID, blob.status, err)
	}
}

// folders checks what lies on the disk after everything was stopped.
func (a *auditor) folders(t *testing.T, p plant) {
	t.Helper()
	for worker, base := range p.bases() {
		names := func(sub string) (list []string) {
			entries, err := os.ReadDir(filepath.Join(base, sub))
			if err != nil {
				t.Error(err)
			}
			for _, e := range entries {
				list = append(list, e.Name())
			}
			return list
		}
		there := map[string]bool{}
		for _, id := range names("workspaces") {
			there[id] = true
			if _, ok := a.jobs[id]; !ok {
				t.Errorf("%s has a workspace of %s, which is no job", worker, id)
			}
		}
		for id, j := range a.jobs {
			if j.Worker == worker && !there[id] {
				t.Errorf("the workspace of job %s, which %s did, is gone", id, worker)
			}
		}
		for _, name := range names("snapshots") {
			id, _, _ := strings.Cut(name, ".")
			if _, ok := a.jobs[id]; !ok {
				t.Errorf("%s has a snapshot %s, which is of no job", worker, name)
			}
		}
		if rest := names("spool"); len(rest) > 0 {
			t.Errorf("%s left output behind: %v", worker, rest)
		}
	}
}

// integrity has the database check itself.
func (a *auditor) integrity(t *testing.T, path string) {
	t.Helper()
	if path == "" || onPostgres() {
		return // the server looks after its own files
	}
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var says string
	if err := db.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&says); err != nil || says != "ok" {
		t.Errorf("the database: %s, %v", says, err)
	}
}
