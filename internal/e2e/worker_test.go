package e2e

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// plainWorker is a worker as the first users of the queue wrote theirs: it
// polls for ASSIGNED jobs, claims the first with its bare name, makes a
// workspace, writes a file, packs the workspace, and says that it is done.
type plainWorker struct {
	*asker
	id   string
	base string        // /sandbox
	nap  time.Duration // when there is nothing to do

	claims, conflicts atomic.Int64
}

// work does one round and reports whether it completed a job.
func (w *plainWorker) work(ctx context.Context) (bool, error) {
	var jobs []struct{ ID string }
	if err := w.get(ctx, "/jobs?status=ASSIGNED", &jobs); err != nil {
		return false, err
	}
	if len(jobs) == 0 {
		pause(ctx, w.nap)
		return false, nil
	}
	id := jobs[0].ID
	name, _ := json.Marshal(w.id)
	claim, err := w.ask(ctx, http.MethodPost, "/jobs/"+id+"/claim", name)
	if err != nil {
		return false, err
	}
	switch claim.status {
	case http.StatusOK:
		w.claims.Add(1)
	case http.StatusConflict: // somebody was faster
		w.conflicts.Add(1)
		return false, nil
	default:
		return false, errors.New("claim: " + claim.String())
	}
	snapshot, err := w.do(id)
	if err != nil {
		return false, err
	}
	body, _ := json.Marshal(map[string]any{"success": true, "details": map[string]string{"snapshot": snapshot}})
	done, err := w.ask(ctx, http.MethodPost, "/jobs/"+id+"/complete", body)
	if err == nil && done.status != http.StatusOK {
		err = errors.New("complete: " + done.String())
	}
	return err == nil, err
}

// do is the reference work; it returns where the snapshot is.
func (w *plainWorker) do(id string) (string, error) {
	const text = "Task executed successfully\n"
	dir := filepath.Join(w.base, "workspaces", id)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "result.txt"), []byte(text), 0o644); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Join(w.base, "snapshots"), 0o755); err != nil {
		return "", err
	}
	f, err := os.Create(filepath.Join(w.base, "snapshots", id+".tar"))
	if err != nil {
		return "", err
	}
	pack := tar.NewWriter(f)
	err = errors.Join(
		pack.WriteHeader(&tar.Header{Name: id + "/", Typeflag: tar.TypeDir, Mode: 0o755}),
		pack.WriteHeader(&tar.Header{Name: id + "/result.txt", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}),
	)
	if err == nil {
		_, err = pack.Write([]byte(text))
	}
	return f.Name(), errors.Join(err, pack.Close(), f.Close())
}

// loneManager starts a manager and nothing else.
func loneManager(t *testing.T, env ...string) *asker {
	t.Helper()
	sock, url, err := socket()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sock.Close() })
	p, err := start(append(env, "AUREA_LISTEN_FD=3", "AUREA_DATA="+filepath.Join(dataFolder(t), "data")), sock, "manager")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if code, err := p.stop(); err != nil || code != 0 {
			t.Errorf("manager ends with %d, %v:\n%s", code, err, p.said())
		}
	})
	if err := p.expect("manager serves"); err != nil {
		t.Fatal(err)
	}
	return newAsker(t, url)
}

// submission is the answer to a plan.
type submission struct {
	Root    string   `json:"root_job_id"`
	Jobs    []string `json:"job_ids"`
	Message string   `json:"message"`
}

func submit(t *testing.T, k *asker, prd string) (s submission) {
	t.Helper()
	a, err := k.ask(t.Context(), http.MethodPost, "/prds", []byte(prd))
	if err == nil {
		err = a.into(http.StatusCreated, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPlainWorker completes a job against a manager that has no worker of
// ours.
func TestPlainWorker(t *testing.T) {
	t.Parallel()
	k := loneManager(t)
	s := submit(t, k, `{"project_id": 1, "title": "Test PRD", "tasks": [{"role": "Employee", "payload": {"action": "create file"}}]}`)
	w := &plainWorker{asker: k, id: "employee_ollama", base: t.TempDir(), nap: 20 * time.Millisecond}
	eventually(t, "the worker completes the job", func() (bool, string) {
		done, err := w.work(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return done, "nothing was assigned"
	})
	for _, id := range []string{s.Jobs[0], s.Root} {
		var j struct{ Status, Outcome string }
		if err := k.get(t.Context(), "/jobs/"+id, &j); err != nil || j.Status != "COMPLETED" || j.Outcome != "ok" {
			t.Errorf("job %s: %+v, %v", id, j, err)
		}
	}
	var j struct {
		Model   string `json:"assigned_model"`
		Details struct{ Snapshot string }
	}
	if err := k.get(t.Context(), "/jobs/"+s.Jobs[0], &j); err != nil || j.Model != w.id {
		t.Errorf("%+v, %v", j, err)
	}
	if _, err := os.Stat(j.Details.Snapshot); err != nil || filepath.Base(j.Details.Snapshot) != s.Jobs[0]+".tar" {
		t.Errorf("the snapshot: %v", err)
	}
	var events []struct{ Type string }
	if err := k.get(t.Context(), "/jobs/"+s.Jobs[0]+"/events", &events); err != nil {
		t.Fatal(err)
	}
	story := make([]string, len(events))
	for i, e := range events {
		story[i] = e.Type
	}
	if want := "job.created job.assigned job.claimed job.completed"; strings.Join(story, " ") != want {
		t.Errorf("the events are %v", story)
	}
}

// TestPlainWorkersRace lets several of them go for the same jobs: each job has
// one winner, the others get 409.
func TestPlainWorkersRace(t *testing.T) {
	t.Parallel()
	const workers, jobs = 4, 40
	k := loneManager(t)
	s := submit(t, k, `{"title": "Race", "tasks": [`+strings.TrimSuffix(strings.Repeat(`{},`, jobs), ",")+`]}`)
	base := t.TempDir()
	all := make([]*plainWorker, workers)
	var done atomic.Int64
	var running sync.WaitGroup
	for i := range all {
		all[i] = &plainWorker{asker: k, id: fmt.Sprintf("worker_%d", i), base: base, nap: 5 * time.Millisecond}
		running.Go(func() {
			for done.Load() < jobs && t.Context().Err() == nil && !t.Failed() {
				ok, err := all[i].work(t.Context())
				if err != nil {
					t.Error(err)
				}
				if ok {
					done.Add(1)
				}
			}
		})
	}
	running.Wait()
	var claims, conflicts int64
	for _, w := range all {
		claims, conflicts = claims+w.claims.Load(), conflicts+w.conflicts.Load()
	}
	if claims != jobs {
		t.Errorf("%d claims won for %d jobs", claims, jobs)
	}
	t.Logf("%d claims lost", conflicts)
	// A claim on one job by all at once: one 200, the rest 409.
	one := submit(t, k, `{"title": "One", "tasks": [{}]}`)
	answers := make([]int, 8)
	for i := range answers {
		running.Go(func() {
			a, err := k.ask(t.Context(), http.MethodPost, "/jobs/"+one.Jobs[0]+"/claim", fmt.Appendf(nil, "%q", fmt.Sprint("w", i)))
			if err != nil {
				t.Error(err)
			}
			answers[i] = a.status
		})
	}
	running.Wait()
	slices.Sort(answers)
	if answers[0] != http.StatusOK || answers[1] != http.StatusConflict || answers[7] != http.StatusConflict {
		t.Errorf("eight claims of one job: %v", answers)
	}
	var root struct{ Status string }
	if err := k.get(t.Context(), "/jobs/"+s.Root, &root); err != nil || root.Status != "COMPLETED" {
		t.Errorf("%+v, %v", root, err)
	}
}
