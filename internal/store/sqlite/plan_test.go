package sqlite

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/sqlstore"
)

// The history: many ended jobs, each with events. Put in by one statement
// each, since the store itself would take its time.
const (
	oldJobs = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000)
		INSERT INTO job (id, root_id, root, owner, depends_on, created_at, project_id, session_id, key, title, role, type, payload,
			priority, timeout_ns, max_retries, validate, state, outcome, details, assigned_model, waiting, open, failures,
			losses, attempt, worker, submitter, fence, lease_until, ready_at, started_at, completed_at, updated_at)
		SELECT 'job' || i, 'root' || i / 10, 0, 'local', '', i, i % 7, '', '', 'title', 'Employee', '', '{}',
			0, 1, 3, 0, CASE i % 10 WHEN 0 THEN 'FAILED' ELSE 'COMPLETED' END, 'ok', '', 'm', 0, 0, 0,
			0, 1, 'w', '', 1, i, i, i, i, i FROM n`
	oldEvents = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
		INSERT INTO event (type, version, entity, entity_id, job_id, root_id, project_id, actor, owner, at, data)
		SELECT 'job.created', 1, 'job', 'job' || i / 4, 'job' || i / 4, 'root' || i / 40, i % 7, 'local', 'local', i, '{}' FROM n`
)

// planner is a Querier that asks for the plan of each query instead.
type planner struct {
	conn  *conn
	plans []string
}

func (p *planner) plan(ctx context.Context, query string, args []any) error {
	stmt, err := p.conn.prepare(ctx, "EXPLAIN QUERY PLAN "+query)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			return err
		}
		p.plans = append(p.plans, detail)
	}
	return rows.Err()
}

func (p *planner) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return 1, p.plan(ctx, query, args)
}

func (p *planner) Insert(ctx context.Context, query string, args ...any) (rows, last int64, err error) {
	return 1, 1, p.plan(ctx, query, args)
}

func (p *planner) Query(ctx context.Context, _ func(*sql.Rows) error, query string, args ...any) error {
	return p.plan(ctx, query, args)
}

// TestHotQueriesDoNotReadHistory holds, over a store with a long history, that
// what the queue and the doors ask all the time is searched in indexes. The
// only things walked from end to end are indexes that hold open jobs alone,
// and the few rows that count the ended ones.
func TestHotQueriesDoNotReadHistory(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, w, _ := start(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	err := s.Update(ctx, func(store.Tx) error {
		if err := w.conn.do(ctx, oldJobs); err != nil {
			return err
		}
		return w.conn.do(ctx, oldEvents)
	})
	if err != nil {
		t.Fatal(err)
	}
	now, project := time.Now(), int64(3)
	hot := map[string]func(tx store.Tx) error{
		"get":       func(tx store.Tx) error { _, err := tx.Jobs().Get(ctx, "job7"); _ = err; return nil },
		"put":       func(tx store.Tx) error { _ = tx.Jobs().Put(ctx, &job.Job{ID: "job7"}); return nil },
		"due":       func(tx store.Tx) error { _, err := tx.Jobs().Due(ctx, now, 10); return err },
		"ready":     func(tx store.Tx) error { _, err := tx.Jobs().NextReady(ctx); return err },
		"leasable":  func(tx store.Tx) error { _, err := tx.Jobs().Leasable(ctx, []string{"a", "b"}, 3); return err },
		"expired":   func(tx store.Tx) error { _, err := tx.Jobs().Expired(ctx, now, 10); return err },
		"held":      func(tx store.Tx) error { _, err := tx.Jobs().HeldBy(ctx, "w"); return err },
		"depends":   func(tx store.Tx) error { _, err := tx.Jobs().Dependents(ctx, "job7"); return err },
		"children":  func(tx store.Tx) error { _, err := tx.Jobs().Children(ctx, "root7"); return err },
		"busy":      func(tx store.Tx) error { _, err := tx.Jobs().Busy(ctx); return err },
		"stats":     func(tx store.Tx) error { _, err := tx.Jobs().Stats(ctx, ""); return err },
		"my stats":  func(tx store.Tx) error { _, err := tx.Jobs().Stats(ctx, "local"); return err },
		"by state":  list(ctx, store.JobFilter{State: job.Queued, Before: 9}),
		"by owner":  list(ctx, store.JobFilter{Owner: "local", Before: 9}),
		"by root":   list(ctx, store.JobFilter{RootID: "root7"}),
		"project":   list(ctx, store.JobFilter{ProjectID: &project}),
		"two words": list(ctx, store.JobFilter{State: job.Assigned, Role: "Employee", Owner: "local", ProjectID: &project, Before: 9}),
		"ended":     list(ctx, store.JobFilter{State: job.Failed, Owner: "local"}),
		"one of":    events(ctx, event.Filter{JobID: "job7", RootID: "root7", Owner: "local", ProjectID: 3, Types: []event.Type{"a", "b"}}),
		"page":      list(ctx, store.JobFilter{Before: 1000}),
		"last":      func(tx store.Tx) error { _, err := tx.Events().Last(ctx); return err },
		"after":     events(ctx, event.Filter{After: 199000}),
		"of a job":  events(ctx, event.Filter{After: 10, JobID: "job7"}),
		"of a root": events(ctx, event.Filter{RootID: "root7", Owner: "local"}),
		"entity":    events(ctx, event.Filter{EntityIDs: []string{"w"}, Entities: []string{"worker"}, After: 5}),
		"reply":     func(tx store.Tx) error { _, err := tx.Replies().Get(ctx, "o", "k"); _ = err; return nil },
		"forget":    func(tx store.Tx) error { _, err := tx.Replies().Forget(ctx, now); return err },
		"record":    func(tx store.Tx) error { _, err := tx.Records().Get(ctx, "j", 0); _ = err; return nil },
		"artifacts": func(tx store.Tx) error { _, err := tx.Records().Artifacts(ctx, "j", 0); return err },
		"key":       func(tx store.Tx) error { _, err := tx.Keys().ByHash(ctx, [32]byte{}); _ = err; return nil },
	}
	for name, query := range hot {
		err := s.Update(ctx, func(store.Tx) error {
			p := &planner{conn: w.conn}
			if err := query(sqlstore.New(p)); err != nil {
				return err
			}
			if len(p.plans) == 0 {
				t.Errorf("%s: no plan was made", name)
			}
			checkPlan(t, name, p.plans)
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func list(ctx context.Context, f store.JobFilter) func(store.Tx) error {
	return func(tx store.Tx) error { _, err := tx.Jobs().List(ctx, f); return err }
}

func events(ctx context.Context, f event.Filter) func(store.Tx) error {
	return func(tx store.Tx) error { _, err := tx.Events().List(ctx, f, 100); return err }
}

func checkPlan(t *testing.T, name string, plan []string) {
	t.Helper()
	t.Logf("%s: %s", name, strings.Join(plan, " / "))
	// Ordered walks that a LIMIT stops, indexes of open jobs, small tables, and
	// parts of the plan itself.
	allowed := []string{
		"INDEX job_due", "INDEX job_ready", "INDEX job_busy", "INDEX job_lease", "INDEX job_open", "SCAN job_ended", "SCAN mine", "SCAN (subquery",
	}
	for _, step := range plan {
		bad := strings.HasPrefix(step, "SCAN ") && !(name == "last" && step == "SCAN event")
		for _, ok := range allowed {
			bad = bad && !strings.Contains(step, ok)
		}
		// What must be sorted must be small: the jobs of one call, or the names.
		sorts := strings.Contains(step, "TEMP B-TREE FOR ORDER BY") && name != "leasable" && name != "depends" && name != "held"
		if bad || sorts {
			t.Errorf("%s: the plan has the step %q", name, step)
		}
	}
}
