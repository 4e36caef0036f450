package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/aurea-dev/aurea/client"
)

// TestRunsOutliveTheManager kills the manager while runs wait and run: each
// ends once, with all that it printed.
func TestRunsOutliveTheManager(t *testing.T) {
	t.Parallel()
	p := newRoles(t)
	k := newAsker(t, p.url())
	c, err := client.New(p.url(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	eventually(t, "a worker serves", func() (bool, string) {
		var health struct {
			Workers int `json:"workers"`
		}
		err := k.get(t.Context(), "/health", &health)
		return err == nil && health.Workers == 2, fmt.Sprint(health, err)
	})
	runs := make([]client.Run, 20)
	for i := range runs {
		runs[i] = client.Run{Code: "x", Language: "bash", Env: map[string]string{"FAKE_SLEEP": "1s", "FAKE_STDOUT": fmt.Sprintf("run %d", i)}}
	}
	states, err := c.SubmitRuns(t.Context(), runs...)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "one has begun", func() (bool, string) {
		s, err := c.GetRun(t.Context(), states[0].RunID, 0)
		return err == nil && s.Status == client.Running, fmt.Sprint(s.Status, err)
	})
	if err := p.kill("manager"); err != nil {
		t.Fatal(err)
	}
	if err := p.start("manager"); err != nil {
		t.Fatal(err)
	}
	for i, s := range states {
		got, err := c.WaitRun(t.Context(), s.RunID)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("run %d", i); got.Status != client.Completed || got.Result == nil || got.Result.Stdout != want {
			t.Errorf("run %d is %s: %+v", i, got.Status, got.Result)
		}
		var events []struct {
			Type string `json:"type"`
		}
		a, err := k.ask(t.Context(), http.MethodGet, "/events?after=0&entity_id="+s.RunID, nil, "Accept", "application/json")
		if err == nil {
			err = a.into(http.StatusOK, &events)
		}
		if err != nil {
			t.Fatal(err)
		}
		ends := 0
		for _, e := range events {
			if e.Type == "run.ended" {
				ends++
			}
		}
		if ends != 1 {
			t.Errorf("run %d ended %d times: %v", i, ends, events)
		}
	}
}

// TestPlainRun sends what clients of a plain code runner send, as they send it.
func TestPlainRun(t *testing.T) {
	t.Parallel()
	p := newRoles(t)
	k := newAsker(t, p.url())
	eventually(t, "a run is answered", func() (bool, string) {
		a, err := k.ask(t.Context(), http.MethodPost, "/run", []byte(`{"code": "echo hello", "language": "bash", "timeout": 10}`))
		if err != nil || a.status != http.StatusOK {
			return false, fmt.Sprint(a.status, err)
		}
		var got struct {
			RunID         string            `json:"run_id"`
			Success       *bool             `json:"success"`
			ExitCode      *int              `json:"exit_code"`
			ExecutionTime *float64          `json:"execution_time"`
			TimedOut      *bool             `json:"timed_out"`
			Timeout       int               `json:"timeout"`
			Artifacts     map[string]string `json:"artifacts"`
		}
		err = json.Unmarshal(a.body, &got)
		whole := got.Success != nil && got.ExitCode != nil && got.ExecutionTime != nil && got.TimedOut != nil && got.Artifacts != nil
		return err == nil && whole && len(got.RunID) == 36 && got.Timeout == 10, string(a.body)
	})
}
