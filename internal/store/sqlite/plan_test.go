package sqlite

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/sqlstore"
	"github.com/aurea-dev/aurea/internal/store/storetest"
)

// The history: many ended jobs, each with events; HISTORY says how many. Put in by one statement
// each, since the store itself would take its time.
const (
	oldJobs = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO job (id, root_id, root, owner, depends_on, created_at, project_id, session_id, key, title, role, type, payload,
			priority, timeout_ns, max_retries, validate, state, outcome, details, assigned_model, waiting, open, failures,
			losses, attempt, worker, submitter, fence, lease_until, ready_at, started_at, completed_at, updated_at)
		SELECT 'job' || i, 'root' || i / 10, 0, 'local', '', i, i %% 7, '', '', 'title', 'Employee', '', '{}',
			0, 1, 3, 0, CASE i %% 10 WHEN 0 THEN 'FAILED' ELSE 'COMPLETED' END, 'ok', '', 'm', 0, 0, 0,
			0, 1, 'w', '', 1, i, i, i, i, i FROM n`
	oldEvents = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO event (type, version, entity, entity_id, job_id, root_id, project_id, actor, owner, at, data)
		SELECT 'job.created', 1, 'job', 'job' || i / 4, 'job' || i / 4, 'root' || i / 40, i %% 7, 'local', 'local', i, '{}' FROM n`
	oldRuns = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO run (id, owner, state, language, code_sha256, timeout_ns, sync, manager, fence, attempt, worker, verdict, reason, webhook, trace,
			created_at, started_at, ended_at, record, request)
		SELECT 'run' || i, 'local', 'COMPLETED', 'python', '', 1, 1, 'm', 1, 1, 'w', 'ok', '', '', '', i, i, i, '{}', '' FROM n`
	oldDependency = `INSERT INTO dependency (on_id, job_seq) VALUES ('job7', 8)`
)

// planner is a Querier that asks for the plan of each statement. Questions are
// also answered, so that what depends on an answer comes up; nothing is written.
type planner struct {
	session *session
	plans   []string
}

func (p *planner) plan(ctx context.Context, query string, args []any) error {
	what := ""
	if !strings.HasPrefix(query, "SELECT") {
		what, _, _ = strings.Cut(query, " ")
		what += ": "
	}
	return p.session.Query(ctx, func(row sqlstore.Row) error {
		var id, parent, unused int
		var detail string
		err := row.Scan(&id, &parent, &unused, &detail)
		p.plans = append(p.plans, what+detail)
		return err
	}, "EXPLAIN QUERY PLAN "+query, args...)
}

func (p *planner) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return 1, p.plan(ctx, query, args)
}

func (p *planner) Add(ctx context.Context, insert string, args ...any) (bool, error) {
	return true, p.Write(ctx, insert, args...)
}

func (p *planner) Write(ctx context.Context, query string, args ...any) error {
	return p.plan(ctx, query, args)
}

func (p *planner) Insert(ctx context.Context, into sqlstore.Numbered, args []any) (rows, last int64, err error) {
	return 1, 1, p.plan(ctx, into.SQL(1), args)
}

func (p *planner) Query(ctx context.Context, scan func(sqlstore.Row) error, query string, args ...any) error {
	if err := p.plan(ctx, query, args); err != nil {
		return err
	}
	return p.session.Query(ctx, scan, query, args...)
}

// TestHotQueriesDoNotReadHistory holds, over a store with a long history, that
// what the queue and the doors ask all the time is searched in indexes. The
// only things walked from end to end are indexes that hold open jobs alone,
// and the few rows that count the ended ones.
func TestHotQueriesDoNotReadHistory(t *testing.T) {
	t.Parallel()
	ctx, rows := t.Context(), 100_000
	if n, err := strconv.Atoi(os.Getenv("HISTORY")); err == nil {
		rows = n
	}
	s, w, _ := start(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	err := s.Update(ctx, func(store.Tx) error {
		for _, put := range []string{fmt.Sprintf(oldJobs, rows/4), fmt.Sprintf(oldEvents, rows), fmt.Sprintf(oldRuns, rows/4), oldDependency} {
			if err := w.conn.do(ctx, put); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, hot := range storetest.HotQueries(ctx) {
		err := s.Update(ctx, func(store.Tx) error {
			p := &planner{session: &session{conn: w.conn}}
			if err := hot.Ask(sqlstore.New(p)); err != nil {
				return err
			}
			checkPlan(t, hot, p.plans)
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", hot.Name, err)
		}
	}
}

func checkPlan(t *testing.T, hot storetest.Hot, plan []string) {
	t.Helper()
	t.Logf("%s: %s", hot.Name, strings.Join(plan, " / "))
	if len(plan) == 0 {
		t.Errorf("%s: no plan was made", hot.Name)
	}
	if hot.Index != "" && !strings.Contains(strings.Join(plan, " "), "INDEX "+hot.Index) {
		t.Errorf("%s: the index %s is not used", hot.Name, hot.Index)
	}
	if hot.Name == "put" && !slices.ContainsFunc(plan, func(step string) bool { return strings.HasPrefix(step, "UPDATE: SEARCH job") }) {
		t.Errorf("%s: the plan of the update is missing", hot.Name)
	}
	// Ordered walks that a LIMIT stops, indexes of open jobs, small tables, and
	// parts of the plan itself.
	allowed := []string{
		"INDEX job_due", "INDEX job_ready", "INDEX job_busy", "INDEX job_lease", "INDEX job_open", "SCAN job_ended", "SCAN mine", "SCAN (subquery",
		"INDEX run_open", "SCAN run_manager",
	}
	for _, step := range plan {
		bad := strings.Contains(step, "SCAN ") && (hot.Name != "last" || step != "SCAN event")
		for _, ok := range allowed {
			bad = bad && !strings.Contains(step, ok)
		}
		if bad || strings.Contains(step, "TEMP B-TREE FOR ORDER BY") && !hot.Sorts {
			t.Errorf("%s: the plan has the step %q", hot.Name, step)
		}
	}
}
