package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Bounds of a PRD. They are far above what people write and far below what
// hurts the server.
const (
	MaxTasks        = 1000
	MaxTitle        = 500
	MaxWord         = 100 // key, role, type, session id
	MaxPayloadBytes = 4 << 20
	MaxNesting      = 64
	MaxPriority     = 1000
)

// PRD is a plan with tasks, as a client sends it.
type PRD struct {
	ProjectID int64
	Title     string
	Tasks     []Task
	Source    json.RawMessage // the whole document, kept in the created event
}

// Task is one task of a PRD. Nil pointers take their default.
type Task struct {
	Key        string
	Title      string
	Role       string
	Type       string
	Payload    json.RawMessage
	Priority   int
	DependsOn  []string // keys of other tasks
	Timeout    *time.Duration
	MaxRetries *int
	Validate   bool
	SessionID  string
}

// Plan checks the PRD and returns its root and one job per task, in order,
// ready to be stored. Nothing is stored when it fails: the fault names the
// field.
func (p PRD) Plan(owner string, now time.Time) (root Job, tasks []Job, err error) {
	if err := p.check(); err != nil {
		return Job{}, nil, err
	}
	root = Job{
		ID: NewID(), Owner: owner, ProjectID: p.ProjectID, Title: p.Title, Role: "PRD", Type: "PRD",
		Payload: json.RawMessage(`{}`), State: InProgress, Open: len(p.Tasks),
		ReadyAt: now, CreatedAt: now, UpdatedAt: now, StartedAt: now,
	}
	root.RootID = root.ID
	ids, keys := map[string]string{}, map[string]bool{}
	for i, t := range p.Tasks {
		j, err := t.job(&root, i)
		if err != nil {
			return Job{}, nil, err
		}
		if t.Key != "" {
			if keys[t.Key] {
				return Job{}, nil, fault.Field(at(i, "key"), "two tasks have the key %q; keys name tasks within a PRD and must differ", t.Key)
			}
			keys[t.Key] = true
			ids[t.Key] = j.ID
		}
		tasks = append(tasks, j)
	}
	if err := link(p.Tasks, tasks, ids); err != nil {
		return Job{}, nil, err
	}
	return root, tasks, nil
}

func (p PRD) check() error {
	if p.ProjectID < 0 {
		return fault.Field("project_id", "must not be negative")
	}
	if err := checkText("title", p.Title, MaxTitle); err != nil {
		return err
	}
	if strings.TrimSpace(p.Title) == "" {
		return fault.Field("title", "must not be empty")
	}
	if len(p.Tasks) == 0 {
		return fault.Field("tasks", "a PRD needs at least one task")
	}
	if len(p.Tasks) > MaxTasks {
		return fault.Field("tasks", "has %d tasks; at most %d fit in one PRD", len(p.Tasks), MaxTasks)
	}
	return nil
}

// job checks one task and makes its job, without its dependencies.
func (t Task) job(root *Job, i int) (Job, error) {
	if err := t.checkWords(i); err != nil {
		return Job{}, err
	}
	j := Job{
		ID: NewID(), RootID: root.ID, Owner: root.Owner, ProjectID: root.ProjectID, SessionID: t.SessionID,
		Key: t.Key, Title: t.Title, Role: t.Role, Type: t.Type, Payload: t.Payload, Priority: t.Priority,
		Timeout: DefaultTimeout, MaxRetries: DefaultMaxRetries, Validate: t.Validate,
		State: Queued, ReadyAt: root.CreatedAt, CreatedAt: root.CreatedAt, UpdatedAt: root.CreatedAt,
	}
	if j.Role == "" {
		j.Role = DefaultRole
	}
	if j.Title == "" {
		j.Title = root.Title
	}
	if len(j.Payload) == 0 || string(j.Payload) == "null" {
		j.Payload = json.RawMessage(`{}`)
	}
	if t.Timeout != nil {
		if *t.Timeout < time.Second || *t.Timeout > MaxTimeout {
			return Job{}, fault.Field(at(i, "timeout_seconds"), "must be from 1 to %d", int(MaxTimeout.Seconds()))
		}
		j.Timeout = *t.Timeout
	}
	if t.MaxRetries != nil {
		if *t.MaxRetries < 0 || *t.MaxRetries > MaxMaxRetries {
			return Job{}, fault.Field(at(i, "max_retries"), "must be from 0 to %d", MaxMaxRetries)
		}
		j.MaxRetries = *t.MaxRetries
	}
	if t.Priority < -MaxPriority || t.Priority > MaxPriority {
		return Job{}, fault.Field(at(i, "priority"), "must be from %d to %d", -MaxPriority, MaxPriority)
	}
	if _, err := ParseWork(j.Payload); err != nil {
		return Job{}, underField(at(i, "payload"), err)
	}
	return j, nil
}

func (t Task) checkWords(i int) error {
	for _, w := range []struct {
		name, text string
		most       int
	}{
		{"key", t.Key, MaxWord},
		{"title", t.Title, MaxTitle},
		{"role", t.Role, MaxWord},
		{"type", t.Type, MaxWord},
		{"session_id", t.SessionID, MaxWord},
	} {
		if err := checkText(at(i, w.name), w.text, w.most); err != nil {
			return err
		}
	}
	return nil
}

// link turns keys into ids, and refuses unknown keys and cycles.
func link(tasks []Task, jobs []Job, ids map[string]string) error {
	index := map[string]int{}
	for i := range jobs {
		index[jobs[i].ID] = i
	}
	for i, t := range tasks {
		seen := map[string]bool{}
		for _, key := range t.DependsOn {
			id, ok := ids[key]
			if !ok {
				return fault.Field(at(i, "depends_on"), "no task of this PRD has the key %q", key).WithCode("unknown_key")
			}
			if seen[id] {
				continue
			}
			seen[id] = true
			jobs[i].DependsOn = append(jobs[i].DependsOn, id)
		}
		jobs[i].Waiting = len(jobs[i].DependsOn)
	}
	return refuseCycle(jobs, index)
}

// refuseCycle takes away, again and again, the jobs that depend on nothing
// that is left; what cannot be taken away stands in a cycle.
func refuseCycle(jobs []Job, index map[string]int) error {
	waiting := make([]int, len(jobs))
	dependents := make([][]int, len(jobs))
	var free []int
	for i := range jobs {
		waiting[i] = len(jobs[i].DependsOn)
		if waiting[i] == 0 {
			free = append(free, i)
		}
		for _, id := range jobs[i].DependsOn {
			dependents[index[id]] = append(dependents[index[id]], i)
		}
	}
	taken := 0
	for len(free) > 0 {
		i := free[len(free)-1]
		free = free[:len(free)-1]
		taken++
		for _, d := range dependents[i] {
			if waiting[d]--; waiting[d] == 0 {
				free = append(free, d)
			}
		}
	}
	if taken == len(jobs) {
		return nil
	}
	i := inCycle(jobs, index, waiting)
	return fault.Field(at(i, "depends_on"), "task %q waits for itself through its dependencies", jobs[i].Key).WithCode("dependency_cycle")
}

// inCycle returns a job of a cycle. What is left, where waiting is not 0, can
// also be behind a cycle; following what it waits for leads into one.
func inCycle(jobs []Job, index map[string]int, waiting []int) int {
	i := slices.IndexFunc(waiting, func(n int) bool { return n > 0 })
	for range jobs {
		on := slices.IndexFunc(jobs[i].DependsOn, func(id string) bool { return waiting[index[id]] > 0 })
		i = index[jobs[i].DependsOn[on]]
	}
	return i
}

// at names a field of the i-th task.
func at(i int, field string) string { return fmt.Sprintf("tasks[%d].%s", i, field) }

// underField puts a prefix before the field of a fault.
func underField(prefix string, err error) error {
	f, ok := err.(*fault.Error) //nolint:errorlint // ParseWork returns bare faults
	if !ok {
		return err
	}
	c := *f
	if c.Field == "" {
		c.Field = prefix
	} else {
		c.Field = prefix + "." + c.Field
	}
	return &c
}

// CheckWord refuses what is not a usable id or name from outside.
func CheckWord(field, s string) error {
	if strings.TrimSpace(s) == "" {
		return fault.Field(field, "must not be empty")
	}
	return checkText(field, s, MaxWord)
}

// checkText refuses what no database and no terminal should be handed.
func checkText(field, s string, most int) error {
	switch {
	case len(s) > most:
		return fault.Field(field, "is %d bytes long; at most %d are allowed", len(s), most)
	case !utf8.ValidString(s):
		return fault.Field(field, "is not valid UTF-8")
	case strings.ContainsRune(s, 0):
		return fault.Field(field, "contains a NUL character")
	case strings.ContainsFunc(s, unprintable):
		return fault.Field(field, "contains a control character")
	}
	return nil
}

// unprintable finds characters that can steer a terminal.
func unprintable(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\t\n\r", r) }
