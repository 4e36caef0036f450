package job_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
)

func planTime() time.Time { return time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC) }

// plan makes a PRD of tasks.
func plan(tasks ...job.Task) job.PRD { return job.PRD{Title: "plan", Tasks: tasks} }

func to[T any](v T) *T { return &v }

func TestPlanFillsDefaults(t *testing.T) {
	t.Parallel()
	now := planTime()
	root, jobs, err := job.PRD{ProjectID: 7, Title: "plan", Tasks: []job.Task{{}, {Payload: json.RawMessage("null"), Title: "own"}}}.Plan("me", now)
	if err != nil {
		t.Fatal(err)
	}
	if !root.IsRoot() || root.State != job.InProgress || root.Open != 2 || root.Owner != "me" || root.ProjectID != 7 || !root.CreatedAt.Equal(now) {
		t.Errorf("root %+v", root)
	}
	j := jobs[0]
	if j.IsRoot() || j.RootID != root.ID || j.State != job.Queued || j.Role != "Employee" || j.Timeout != 900*time.Second ||
		j.MaxRetries != 3 || j.Title != "plan" || string(j.Payload) != "{}" || j.Owner != "me" || j.ProjectID != 7 || !j.ReadyAt.Equal(now) {
		t.Errorf("job %+v", j)
	}
	if string(jobs[1].Payload) != "{}" || jobs[1].Title != "own" {
		t.Errorf("job %+v", jobs[1])
	}
}

func TestPlanLinksDependencies(t *testing.T) {
	t.Parallel()
	_, jobs, err := plan(job.Task{Key: "c", DependsOn: []string{"a", "b", "a"}}, job.Task{Key: "a"}, job.Task{Key: "b", DependsOn: []string{"a"}}).Plan("me", planTime())
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{jobs[1].ID, jobs[2].ID}; fmt.Sprint(jobs[0].DependsOn) != fmt.Sprint(want) || jobs[0].Waiting != 2 {
		t.Errorf("c depends on %v and waits for %d, want %v: a name said twice counts once", jobs[0].DependsOn, jobs[0].Waiting, want)
	}
}

func TestPlanNamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	many := make([]job.Task, job.MaxTasks+1)
	for name, c := range map[string]struct {
		prd         job.PRD
		field, code string
	}{
		"negative project": {job.PRD{ProjectID: -1, Title: "x", Tasks: []job.Task{{}}}, "project_id", "invalid"},
		"no title":         {job.PRD{Tasks: []job.Task{{}}}, "title", "invalid"},
		"blank title":      {job.PRD{Title: " \n", Tasks: []job.Task{{}}}, "title", "invalid"},
		"long title":       {job.PRD{Title: strings.Repeat("x", job.MaxTitle+1), Tasks: []job.Task{{}}}, "title", "invalid"},
		"NUL in title":     {job.PRD{Title: "a\x00", Tasks: []job.Task{{}}}, "title", "invalid"},
		"escape in title":  {job.PRD{Title: "a\x1b[2J", Tasks: []job.Task{{}}}, "title", "invalid"},
		"broken title":     {job.PRD{Title: "a\xff", Tasks: []job.Task{{}}}, "title", "invalid"},
		"no tasks":         {job.PRD{Title: "x"}, "tasks", "invalid"},
		"too many tasks":   {job.PRD{Title: "x", Tasks: many}, "tasks", "invalid"},
		"long role":        {plan(job.Task{}, job.Task{Role: strings.Repeat("r", 101)}), "tasks[1].role", "invalid"},
		"same key":         {plan(job.Task{Key: "a"}, job.Task{Key: "a"}), "tasks[1].key", "invalid"},
		"unknown key":      {plan(job.Task{Key: "a", DependsOn: []string{"b"}}), "tasks[0].depends_on", "unknown_key"},
		"empty key":        {plan(job.Task{DependsOn: []string{""}}), "tasks[0].depends_on", "unknown_key"},
		"waits for itself": {plan(job.Task{Key: "a", DependsOn: []string{"a"}}), "tasks[0].depends_on", "dependency_cycle"},
		"behind a cycle": {
			plan(job.Task{Key: "z", DependsOn: []string{"a"}}, job.Task{Key: "a", DependsOn: []string{"b"}}, job.Task{Key: "b", DependsOn: []string{"a"}}),
			"tasks[1].depends_on", "dependency_cycle",
		},
		"no time":        {plan(job.Task{Timeout: to(time.Millisecond)}), "tasks[0].timeout_seconds", "invalid"},
		"all the time":   {plan(job.Task{Timeout: to(job.MaxTimeout + 1)}), "tasks[0].timeout_seconds", "invalid"},
		"fewer retries":  {plan(job.Task{MaxRetries: to(-1)}), "tasks[0].max_retries", "invalid"},
		"more retries":   {plan(job.Task{MaxRetries: to(101)}), "tasks[0].max_retries", "invalid"},
		"high priority":  {plan(job.Task{Priority: 1001}), "tasks[0].priority", "invalid"},
		"low priority":   {plan(job.Task{Priority: -1001}), "tasks[0].priority", "invalid"},
		"unknown action": {plan(job.Task{Payload: json.RawMessage(`{"action":"fly"}`)}), "tasks[0].payload.action", "unknown_action"},
		"payload a list": {plan(job.Task{Payload: json.RawMessage(`[]`)}), "tasks[0].payload", "invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, jobs, err := c.prd.Plan("me", planTime())
			var f *fault.Error
			if !errors.As(err, &f) || f.Kind != fault.Invalid || f.Field != c.field || f.Code != c.code {
				t.Fatalf("got %v (%+v), want an invalid %s with code %s", err, f, c.field, c.code)
			}
			if jobs != nil {
				t.Error("there are jobs in spite of it")
			}
		})
	}
}

// TestPlanRefusesExactlyTheCycles compares with a search that simply follows
// every path.
func TestPlanRefusesExactlyTheCycles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(t, "tasks")
		edge := make([][]bool, n)
		tasks := make([]job.Task, n)
		for i := range n {
			tasks[i].Key = fmt.Sprint(i)
			edge[i] = make([]bool, n)
			for d := range n {
				if rapid.IntRange(0, 4).Draw(t, "edge") == 0 {
					edge[i][d] = true
					tasks[i].DependsOn = append(tasks[i].DependsOn, fmt.Sprint(d))
				}
			}
		}
		reach := func(from, to int) bool {
			seen := make([]bool, n)
			var walk func(int) bool
			walk = func(i int) bool {
				for d := range n {
					if edge[i][d] && (d == to || !seen[d]) {
						seen[d] = true
						if d == to || walk(d) {
							return true
						}
					}
				}
				return false
			}
			return walk(from)
		}
		cyclic := false
		for i := range n {
			cyclic = cyclic || reach(i, i)
		}
		_, jobs, err := plan(tasks...).Plan("me", planTime())
		if (err != nil) != cyclic {
			t.Fatalf("got %v, but cyclic is %v", err, cyclic)
		}
		if err == nil {
			for i := range jobs {
				if jobs[i].Waiting != len(tasks[i].DependsOn) {
					t.Fatalf("task %d waits for %d, want %d", i, jobs[i].Waiting, len(tasks[i].DependsOn))
				}
			}
			return
		}
		var f *fault.Error
		named := -1
		if errors.As(err, &f) {
			_, _ = fmt.Sscanf(f.Field, "tasks[%d].", &named)
		}
		if named < 0 || !reach(named, named) {
			t.Fatalf("%v names a task that does not wait for itself", err)
		}
	})
}

func FuzzPlan(f *testing.F) {
	f.Add("plan", "a", "a", "Employee", []byte(`{"action":"exec","command":["ls"]}`), 0, int64(time.Second), 3)
	f.Add("\x00", "b", "a", "", []byte(`{`), 1001, int64(-1), -1)
	f.Fuzz(func(t *testing.T, title, key, dep, role string, payload []byte, priority int, timeout int64, retries int) {
		p := job.PRD{Title: title, Tasks: []job.Task{
			{Key: key, Role: role, Payload: payload, Priority: priority, Timeout: to(time.Duration(timeout)), MaxRetries: &retries},
			{Key: "last", DependsOn: []string{dep}},
		}}
		root, jobs, err := p.Plan("me", planTime())
		if err != nil {
			demandFault(t, err)
			return
		}
		if len(jobs) != 2 || root.Open != 2 || jobs[0].ID == jobs[1].ID || dep != key || jobs[1].Waiting != 1 || jobs[1].DependsOn[0] != jobs[0].ID {
			t.Fatalf("planned %+v", jobs)
		}
		if j := jobs[0]; !json.Valid(j.Payload) || j.Timeout < time.Second || j.Timeout > job.MaxTimeout || j.MaxRetries < 0 || j.Role == "" {
			t.Fatalf("planned %+v", j)
		}
	})
}

// demandFault demands that a refusal is the sender's fault and says something.
func demandFault(t *testing.T, err error) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Invalid || f.Message == "" {
		t.Fatalf("refused with %#v", err)
	}
	if len(f.Message) > 2000 {
		t.Fatalf("the message has %d bytes", len(f.Message))
	}
}
