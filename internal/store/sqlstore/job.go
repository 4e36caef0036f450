package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
)

// defaultListLimit is how many jobs List returns when nobody says.
const defaultListLimit = 100

// The columns of a job: those that never change, those of its plan, which
// hardly ever do, and those that move with its state. The SQL below and the
// three argument lists keep this order.
const (
	fixedColumns = `id, root_id, root, owner, depends_on, created_at, trace`
	planColumns  = `project_id, session_id, key, title, role, type, payload, priority, timeout_ns, max_retries, validate`
	stateColumns = `state, outcome, details, assigned_model, waiting, open, failures, losses, attempt,
	worker, submitter, fence, lease_until, ready_at, started_at, completed_at, updated_at, reported`
	jobColumns = fixedColumns + ", " + planColumns + ", " + stateColumns
)

const (
	jobWidth = 36 // columns

	dependencyInsert = `INSERT INTO dependency (on_id, job_seq) VALUES ($1, $2) ON CONFLICT DO NOTHING`

	jobSelect = `SELECT seq, ` + jobColumns + ` FROM job`

	stateUpdate = `UPDATE job SET state = $1, outcome = $2, details = $3, assigned_model = $4, waiting = $5,
		open = $6, failures = $7, losses = $8, attempt = $9, worker = $10, submitter = $11, fence = $12,
		lease_until = $13, ready_at = $14, started_at = $15, completed_at = $16, updated_at = $17, reported = $18
		WHERE seq = $19`

	planUpdate = `UPDATE job SET project_id = $1, session_id = $2, key = $3, title = $4, role = $5, type = $6,
		payload = $7, priority = $8, timeout_ns = $9, max_retries = $10, validate = $11
		WHERE seq = $12`

	endedCount = `INSERT INTO job_ended (owner, state, outcome, jobs) VALUES ($1, $2, $3, $4)
		ON CONFLICT (owner, state, outcome) DO UPDATE SET jobs = job_ended.jobs + excluded.jobs`
)

// The hot queries. Their states are written out, word for word as in the
// partial indexes that serve them.
const (
	queuedAndFree = ` WHERE state = 'QUEUED' AND waiting = 0`
	limit2        = ` LIMIT $2 + 0` // see conditions.limit
	inWork        = ` WHERE state IN ('IN_PROGRESS', 'VALIDATING') AND root = 0`

	jobDue       = jobSelect + queuedAndFree + ` AND ready_at <= $1 ORDER BY priority DESC, seq` + limit2
	jobNextReady = `SELECT ready_at FROM job` + queuedAndFree + ` ORDER BY ready_at LIMIT 1`
	jobExpired   = jobSelect + inWork + ` AND lease_until < $1 ORDER BY lease_until, seq` + limit2
	// jobHeldBy looks through the leases, which are few; what is true of each
	// lease, and the sum, lead the planner there.
	jobHeldBy = jobSelect + inWork + ` AND lease_until >= 0 AND worker = $1 ORDER BY seq + 0`
	jobBusy   = `SELECT project_id, COUNT(*) FROM job
		WHERE state IN ('ASSIGNED', 'IN_PROGRESS') AND root = 0 GROUP BY project_id`
	jobChildren = jobSelect + ` WHERE root_id = $1 AND root = 0 ORDER BY seq`
	jobsOpen    = `SELECT state, COUNT(*), MIN(created_at) FROM job
		WHERE (state = 'QUEUED' OR state = 'ASSIGNED' OR state = 'IN_PROGRESS' OR state = 'SUBMITTED' OR state = 'VALIDATING') AND root = 0`
	jobsEnded = `SELECT state, outcome, CAST(SUM(jobs) AS BIGINT) FROM job_ended`
)

type jobs struct{ *Tx }

func (t jobs) Add(ctx context.Context, list ...*job.Job) error {
	for part := range slices.Chunk(list, maxRows) {
		if err := t.add(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// add stores jobs by one statement.
func (t jobs) add(ctx context.Context, list []*job.Job) error {
	args := make([]any, 0, len(list)*jobWidth)
	for _, j := range list {
		dependsOn, err := asJSON(j.DependsOn)
		if err != nil {
			return err
		}
		args = append(args, j.ID, j.RootID, number(j.IsRoot()), j.Owner, dependsOn, micros(j.CreatedAt), j.Trace)
		args = append(append(args, planArgs(j)...), stateArgs(j)...)
	}
	rows, last, err := t.q.Insert(ctx, Numbered{Table: "job", Columns: jobColumns, Width: jobWidth, Once: "id"}, args)
	if err != nil {
		return fmt.Errorf("add jobs: %w", err)
	}
	if rows != int64(len(list)) {
		return jobExists(list)
	}
	for i, j := range list {
		j.Seq = last - rows + int64(i) + 1
		for _, id := range j.DependsOn {
			if err := t.q.Write(ctx, dependencyInsert, id, j.Seq); err != nil {
				return fmt.Errorf("add dependency: %w", err)
			}
		}
		if err := t.countEnded(ctx, j, 1); err != nil {
			return err
		}
	}
	return nil
}

func (t jobs) Get(ctx context.Context, id string) (job.Job, error) {
	j, ok, err := one(ctx, t.Tx, scanJob, jobSelect+` WHERE id = $1`, id)
	if err != nil {
		return job.Job{}, fmt.Errorf("get job: %w", err)
	}
	if !ok {
		return job.Job{}, noJob(id)
	}
	t.remember(&j)
	return j, nil
}

func (t jobs) Find(ctx context.Context, ids ...string) (found []job.Job, err error) {
	for some := range slices.Chunk(ids, maxAsked) {
		in, args := among(some)
		list, err := t.list(ctx, "find jobs", jobSelect+` WHERE id `+in, args...)
		if err != nil {
			return nil, err
		}
		found = append(found, list...)
	}
	return inOrder(found), nil
}

// inOrder sorts by Seq: of few rows that costs less here than in the database.
func inOrder(list []job.Job) []job.Job {
	slices.SortFunc(list, func(a, b job.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	return list
}

// Put writes the plan only where it has changed: nearly every change of a job
// is one of state, and columns that are not written cost no index.
func (t jobs) Put(ctx context.Context, j *job.Job) error {
	old, err := t.stored(ctx, j.ID)
	if err != nil {
		return err
	}
	if !samePlan(&old, j) {
		if err := t.q.Write(ctx, planUpdate, append(planArgs(j), old.Seq)...); err != nil {
			return fmt.Errorf("put job: %w", err)
		}
	}
	if err := t.q.Write(ctx, stateUpdate, append(stateArgs(j), old.Seq)...); err != nil {
		return fmt.Errorf("put job: %w", err)
	}
	now := *j
	now.ID, now.RootID, now.Owner, now.Seq, now.DependsOn, now.CreatedAt, now.Trace = old.ID, old.RootID, old.Owner, old.Seq, old.DependsOn, old.CreatedAt, old.Trace
	if old.State != now.State || old.Outcome != now.Outcome {
		if err := t.countEnded(ctx, &old, -1); err != nil {
			return err
		}
		if err := t.countEnded(ctx, &now, 1); err != nil {
			return err
		}
	}
	t.remember(&now)
	return nil
}

// stored returns a job as the transaction has it. Who puts a job has nearly
// always read it before.
func (t jobs) stored(ctx context.Context, id string) (job.Job, error) {
	if j, ok := t.read[id]; ok {
		return j, nil
	}
	return t.Get(ctx, id)
}

// remember keeps what is stored of a job for the rest of the transaction.
func (t jobs) remember(j *job.Job) {
	if t.read != nil {
		t.read[j.ID] = *j
	}
}

// countEnded adds to the number of ended jobs like j, if j has ended.
func (t jobs) countEnded(ctx context.Context, j *job.Job, n int) error {
	if !j.State.Ended() || j.IsRoot() {
		return nil
	}
	if err := t.q.Write(ctx, endedCount, j.Owner, string(j.State), string(j.Outcome), n); err != nil {
		return fmt.Errorf("count ended jobs: %w", err)
	}
	return nil
}

func (t jobs) List(ctx context.Context, f store.JobFilter) ([]job.Job, error) {
	query, args := jobList(f)
	list, err := page(ctx, t.Tx, store.JobBytes, scanJob, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	for i := range list {
		t.remember(&list[i])
	}
	return list, nil
}

// jobList builds the query of List. Where several indexes would fit, it leaves
// one to use, since without statistics the planner may take the one that walks
// the whole history: a cast hides the other columns from it.
func jobList(f store.JobFilter) (string, []any) {
	var c conditions
	indexed := false
	add := func(column, hidden string, asked bool, value any) {
		if !asked {
			return
		}
		if indexed {
			column = hidden
		}
		indexed = true
		c.add(column+" = ?", value)
	}
	const state, hiddenState = "state || ''", "CAST(state AS TEXT)"
	open := f.State != "" && !f.State.Ended()
	add("root_id", "", f.RootID != "", f.RootID)
	add(state, hiddenState, open, string(f.State))
	if f.ProjectID != nil {
		add("project_id", "CAST(project_id AS BIGINT)", true, *f.ProjectID)
	}
	add("owner", "CAST(owner AS TEXT)", f.Owner != "", f.Owner)
	add(state, hiddenState, f.State != "" && !open, string(f.State))
	if f.Role != "" {
		c.add("role = ?", f.Role)
	}
	if f.Outcome != "" {
		c.add("outcome = ?", string(f.Outcome))
	}
	if f.Before != 0 {
		c.add("seq < ?", f.Before)
	}
	limit := f.Limit
	if limit < 1 {
		limit = defaultListLimit
	}
	return jobSelect + c.where() + ` ORDER BY seq DESC` + c.limit(limit), c.args
}

func (t jobs) Due(ctx context.Context, now time.Time, limit int) ([]job.Job, error) {
	if limit < 1 {
		return nil, nil
	}
	return t.list(ctx, "list due jobs", jobDue, micros(now), limit)
}

func (t jobs) NextReady(ctx context.Context) (time.Time, error) {
	at, _, err := one(ctx, t.Tx, scanInt, jobNextReady)
	if err != nil {
		return time.Time{}, fmt.Errorf("find next ready job: %w", err)
	}
	return timeOf(at), nil
}

func (t jobs) Leasable(ctx context.Context, names []string, limit int) ([]job.Job, error) {
	if limit < 1 {
		return nil, nil
	}
	query, args := leasable(names, limit)
	return t.list(ctx, "list leasable jobs", query, args...)
}

// leasable asks each name's jobs by themselves, so that a heap of jobs that
// are bound to others, or to nobody, is never walked or sorted.
func leasable(names []string, limit int) (string, []any) {
	names = append([]string{""}, names...)
	slices.Sort(names)
	names = slices.Compact(names)
	var c conditions
	most := c.limit(limit)
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = `SELECT seq FROM (SELECT seq FROM job WHERE state = 'ASSIGNED' AND assigned_model = ` + c.arg(name) +
			` ORDER BY priority DESC, seq` + most + `) AS mine`
	}
	return jobSelect + ` WHERE seq IN (` + strings.Join(parts, ` UNION ALL `) + `) ORDER BY priority DESC, seq` + most, c.args
}

func (t jobs) Bound(ctx context.Context, name string, limit int) ([]job.Job, error) {
	if limit < 1 {
		return nil, nil
	}
	const bound = jobSelect + ` WHERE state = 'ASSIGNED' AND assigned_model = $1 ORDER BY priority DESC, seq` + limit2
	return t.list(ctx, "list bound jobs", bound, name, limit)
}

func (t jobs) Expired(ctx context.Context, now time.Time, limit int) ([]job.Job, error) {
	if limit < 1 {
		return nil, nil
	}
	return t.list(ctx, "list expired jobs", jobExpired, micros(now), limit)
}

func (t jobs) HeldBy(ctx context.Context, worker string) ([]job.Job, error) {
	return t.list(ctx, "list held jobs", jobHeldBy, worker)
}

func (t jobs) Dependents(ctx context.Context, ids ...string) ([]job.Job, error) {
	// Most jobs have none, and a row of a job is wide.
	var seqs []int64
	for some := range slices.Chunk(ids, maxAsked) {
		in, args := among(some)
		list, err := all(ctx, t.Tx, scanInt, `SELECT job_seq FROM dependency WHERE on_id `+in, args...)
		if err != nil {
			return nil, fmt.Errorf("list dependents: %w", err)
		}
		seqs = append(seqs, list...)
	}
	slices.Sort(seqs)
	var found []job.Job
	for some := range slices.Chunk(slices.Compact(seqs), maxAsked) {
		in, args := among(some)
		list, err := t.list(ctx, "list dependents", jobSelect+` WHERE seq `+in, args...)
		if err != nil {
			return nil, err
		}
		found = append(found, list...)
	}
	return inOrder(found), nil
}

func (t jobs) Children(ctx context.Context, rootID string) ([]job.Job, error) {
	return t.list(ctx, "list children", jobChildren, rootID)
}

func (t jobs) States(ctx context.Context, rootIDs ...string) (states []store.TaskState, err error) {
	for some := range slices.Chunk(rootIDs, maxAsked) {
		in, args := among(some)
		list, err := all(ctx, t.Tx, func(row Row) (s store.TaskState, err error) {
			err = row.Scan(&s.ID, &s.RootID, (*string)(&s.State))
			return s, err
		}, `SELECT id, root_id, state FROM job WHERE root_id `+in+` AND root = 0`, args...)
		if err != nil {
			return nil, fmt.Errorf("list states: %w", err)
		}
		states = append(states, list...)
	}
	return states, nil
}

func (t jobs) Busy(ctx context.Context) (map[int64]int, error) {
	busy := map[int64]int{}
	_, err := all(ctx, t.Tx, func(row Row) (struct{}, error) {
		var project int64
		var n int
		err := row.Scan(&project, &n)
		busy[project] = n
		return struct{}{}, err
	}, jobBusy)
	if err != nil {
		return nil, fmt.Errorf("count busy jobs: %w", err)
	}
	return busy, nil
}

func (t jobs) Stats(ctx context.Context, owner string) (store.JobStats, error) {
	stats := store.JobStats{Counts: map[job.State]int64{}}
	openQuery, endedQuery := statsQueries(owner)
	var args []any
	if owner != "" {
		args = []any{owner}
	}
	_, err := all(ctx, t.Tx, func(row Row) (struct{}, error) {
		var state job.State
		var n, oldest int64
		err := row.Scan(&state, &n, &oldest)
		stats.Counts[state] = n
		if at := timeOf(oldest); (state == job.Queued || state == job.Assigned) &&
			(stats.OldestQueued.IsZero() || at.Before(stats.OldestQueued)) {
			stats.OldestQueued = at
		}
		return struct{}{}, err
	}, openQuery, args...)
	if err != nil {
		return store.JobStats{}, fmt.Errorf("count open jobs: %w", err)
	}
	_, err = all(ctx, t.Tx, func(row Row) (struct{}, error) {
		var state job.State
		var outcome job.Outcome
		var n int64
		err := row.Scan(&state, &outcome, &n)
		if n != 0 {
			stats.Counts[state] += n
		}
		if state == job.Failed && (outcome == job.OutcomeFailed || outcome == job.OutcomeLost) {
			stats.DeadLetters += n
		}
		return struct{}{}, err
	}, endedQuery, args...)
	if err != nil {
		return store.JobStats{}, fmt.Errorf("count ended jobs: %w", err)
	}
	return stats, nil
}

// statsQueries returns the queries behind Stats, over open and ended jobs.
func statsQueries(owner string) (open, ended string) {
	if owner == "" {
		return jobsOpen + ` GROUP BY state`, jobsEnded + ` GROUP BY state, outcome`
	}
	return jobsOpen + ` AND owner = $1 GROUP BY state`, jobsEnded + ` WHERE owner = $1 GROUP BY state, outcome`
}

func (t jobs) list(ctx context.Context, what, query string, args ...any) ([]job.Job, error) {
	list, err := all(ctx, t.Tx, scanJob, query, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	for i := range list {
		t.remember(&list[i])
	}
	return list, nil
}

// samePlan reports whether two jobs agree in the columns of their plan.
func samePlan(a, b *job.Job) bool {
	return a.ProjectID == b.ProjectID && a.SessionID == b.SessionID && a.Key == b.Key && a.Title == b.Title &&
		a.Role == b.Role && a.Type == b.Type && string(a.Payload) == string(b.Payload) && a.Priority == b.Priority &&
		a.Timeout == b.Timeout && a.MaxRetries == b.MaxRetries && a.Validate == b.Validate
}

func planArgs(j *job.Job) []any {
	return []any{
		j.ProjectID, j.SessionID, j.Key, j.Title, j.Role, j.Type, string(j.Payload), j.Priority,
		int64(j.Timeout), j.MaxRetries, number(j.Validate),
	}
}

func stateArgs(j *job.Job) []any {
	return []any{
		string(j.State), string(j.Outcome), string(j.Details), j.AssignedModel, j.Waiting, j.Open, j.Failures, j.Losses, j.Attempt,
		j.Worker, j.Submitter, j.Fence, micros(j.LeaseUntil), micros(j.ReadyAt), micros(j.StartedAt), micros(j.CompletedAt), micros(j.UpdatedAt), j.Reported,
	}
}

// scanJob scans a row of jobSelect.
func scanJob(row Row) (job.Job, error) {
	var (
		j                                                    job.Job
		dependsOn, payload, details                          string
		root, validate                                       int64
		created, lease, ready, started, completed, updatedAt int64
	)
	err := row.Scan(&j.Seq, &j.ID, &j.RootID, &root, &j.Owner, &dependsOn, &created, &j.Trace,
		&j.ProjectID, &j.SessionID, &j.Key, &j.Title, &j.Role, &j.Type, &payload, &j.Priority,
		(*int64)(&j.Timeout), &j.MaxRetries, &validate,
		(*string)(&j.State), (*string)(&j.Outcome), &details, &j.AssignedModel, &j.Waiting, &j.Open, &j.Failures, &j.Losses, &j.Attempt,
		&j.Worker, &j.Submitter, &j.Fence, &lease, &ready, &started, &completed, &updatedAt, &j.Reported)
	if err != nil {
		return job.Job{}, fmt.Errorf("scan job: %w", err)
	}
	if j.DependsOn, err = ofJSON[string](dependsOn); err != nil {
		return job.Job{}, err
	}
	j.Payload, j.Details, j.Validate = rawJSON(payload), rawJSON(details), validate != 0
	j.CreatedAt, j.LeaseUntil, j.ReadyAt = timeOf(created), timeOf(lease), timeOf(ready)
	j.StartedAt, j.CompletedAt, j.UpdatedAt = timeOf(started), timeOf(completed), timeOf(updatedAt)
	return j, nil
}

func jobExists(list []*job.Job) error {
	ids := make([]string, len(list))
	for i, j := range list {
		ids[i] = strconv.Quote(j.ID)
	}
	return fault.New(fault.Conflict, "a job with the id %s exists", strings.Join(ids, " or ")).WithCode("job_exists")
}

func noJob(id string) error { return fault.New(fault.NotFound, "there is no job %q", id) }
