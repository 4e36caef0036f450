package postgres_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/aurea-dev/aurea/internal/store/sqlstore"
	"github.com/aurea-dev/aurea/internal/store/storetest"
)

// The history: many ended jobs, each with events; HISTORY says how many.
const (
	oldJobs = `INSERT INTO job (seq, id, root_id, root, owner, depends_on, created_at, project_id, session_id, key, title, role, type, payload,
			priority, timeout_ns, max_retries, validate, state, outcome, details, assigned_model, waiting, open, failures,
			losses, attempt, worker, submitter, fence, lease_until, ready_at, started_at, completed_at, updated_at)
		SELECT i, 'job' || i, 'root' || i / 10, 0, 'local', '', i, i %% 7, '', '', 'title', 'Employee', '', '{}',
			0, 1, 3, 0, CASE i %% 10 WHEN 0 THEN 'FAILED' ELSE 'COMPLETED' END, 'ok', '', 'm', 0, 0, 0,
			0, 1, 'w', '', 1, i, i, i, i, i FROM generate_series(1, %d) AS i`
	oldEvents = `INSERT INTO event (seq, type, version, entity, entity_id, job_id, root_id, project_id, actor, owner, at, data)
		SELECT i, 'job.created', 1, 'job', 'job' || i / 4, 'job' || i / 4, 'root' || i / 40, i %% 7, 'local', 'local', i, '{}'
		FROM generate_series(1, %d) AS i`
	oldRecords = `INSERT INTO record (job_id, attempt, body, artifacts) SELECT 'job' || i, 1, '{}', '[]' FROM generate_series(1, %d) AS i`
	oldRuns    = `INSERT INTO run (id, owner, state, language, code_sha256, timeout_ns, sync, manager, fence, attempt, worker, verdict, reason, webhook, trace,
			created_at, started_at, ended_at, record, request)
		SELECT 'run' || i, 'local', 'COMPLETED', 'python', '', 1, 1, 'm', 1, 1, 'w', 'ok', '', '', '', i, i, i, '{}', '' FROM generate_series(1, %d) AS i`
	oldBoxes = `INSERT INTO sandbox (id, owner, name, session, app, state, worker, created_at, started_at, ended_at, due_at, cpu_ns, memory_bytes, body)
		SELECT 'box' || i, 'local', 'name' || i, '', '', 'COMPLETED', 'w' || i, i, i, i %% 2 * i, i + 1e18, 0, 0, '{}' FROM generate_series(1, %d) AS i`
	oldExecs = `INSERT INTO exec (id, sandbox_id, owner, state, created_at, ended_at, body)
		SELECT 'exec' || i, 'box' || i / 4, 'local', 'ENDED', i, i %% 2 * i, '{}' FROM generate_series(1, %d) AS i`
	oldMachines = `INSERT INTO machine (id, owner, app, name, region, state, wanted, sandbox_id, created_at, updated_at, destroyed_at, body)
		SELECT 'machine' || i, 'local', 'app', 'name' || i, '', 'started', 1, 'box' || i, i, i, 0, '{}' FROM generate_series(1, %d) AS i`
	oldLabels  = `INSERT INTO sandbox_label (sandbox_id, label, value) SELECT 'box' || i, 'label', 'value' || i FROM generate_series(1, %d) AS i`
	oldHooks   = `INSERT INTO run_hook (run_id, url, tries, next_at) SELECT 'run' || i, '', 0, i + 1e18 FROM generate_series(1, %d) AS i`
	oldReplies = `INSERT INTO reply (owner, key, request, body, at) SELECT 'local', 'key' || i, '', '', 1e18 FROM generate_series(1, %d) AS i`
	dependency = `INSERT INTO dependency (on_id, job_seq) SELECT 'job' || i, i + 1 FROM generate_series(1, %d) AS i`
)

// planner is a Querier that asks for the plan of each statement. Questions are also
// answered, so that what depends on an answer comes up; nothing is written.
type planner struct {
	conn  *pgx.Conn
	plans []string
}

func (p *planner) plan(ctx context.Context, query string, args []any) error {
	literals := make([]string, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case string:
			literals[i] = "'" + strings.ReplaceAll(v, "'", "''") + "'"
		case []byte:
			literals[i] = fmt.Sprintf(`'\\x%x'`, v)
		default:
			literals[i] = fmt.Sprint(v)
		}
	}
	execute := "EXPLAIN EXECUTE planned"
	if len(args) > 0 {
		execute += " (" + strings.Join(literals, ", ") + ")"
	}
	if _, err := p.conn.Exec(ctx, "PREPARE planned AS "+query); err != nil {
		return err
	}
	rows, err := p.conn.Query(ctx, execute, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return err
	}
	steps, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	p.plans = append(p.plans, steps...)
	_, err = p.conn.Exec(ctx, "DEALLOCATE planned")
	return err
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
	rows, err := p.conn.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// TestHotQueriesDoNotReadHistory holds, over a database with a long history,
// that what the queue and the doors ask all the time is searched in indexes,
// and that what people list costs what they get.
func TestHotQueriesDoNotReadHistory(t *testing.T) {
	t.Parallel()
	ctx, rows := t.Context(), 100_000
	if n, err := strconv.Atoi(os.Getenv("HISTORY")); err == nil {
		rows = n
	}
	address := fresh(t)
	open(t, address)
	conn := ask(t, address)
	for _, put := range []string{
		fmt.Sprintf(oldJobs, rows/4), fmt.Sprintf(oldEvents, rows), fmt.Sprintf(oldRecords, rows/4), fmt.Sprintf(oldReplies, rows/4),
		fmt.Sprintf(oldRuns, rows/4), fmt.Sprintf(oldHooks, rows/4),
		fmt.Sprintf(oldBoxes, rows/4), fmt.Sprintf(oldExecs, rows/4), fmt.Sprintf(oldLabels, rows/4), fmt.Sprintf(oldMachines, rows/4),
		fmt.Sprintf(dependency, rows/4), "ANALYZE", "SET jit = off",
	} {
		if _, err := conn.Exec(ctx, put); err != nil {
			t.Fatal(err)
		}
	}
	for _, hot := range storetest.HotQueries(ctx) {
		// The writer's plans are made once, whatever the values.
		mode := "force_generic_plan"
		if hot.List {
			mode = "force_custom_plan"
		}
		if _, err := conn.Exec(ctx, "SET plan_cache_mode = "+mode); err != nil {
			t.Fatal(err)
		}
		p := &planner{conn: conn}
		if err := hot.Ask(sqlstore.New(p)); err != nil {
			t.Fatalf("%s: %v", hot.Name, err)
		}
		checkPlan(t, hot, p.plans)
	}
}

func checkPlan(t *testing.T, hot storetest.Hot, plan []string) {
	t.Helper()
	whole := strings.Join(plan, "\n")
	t.Logf("%s:\n%s", hot.Name, whole)
	if hot.Index != "" && !hot.List && !strings.Contains(whole, hot.Index) {
		t.Errorf("%s: the index %s is not used", hot.Name, hot.Index)
	}
	if hot.Name == "put" && !strings.Contains(whole, "Update on job") {
		t.Errorf("%s: the plan of the update is missing", hot.Name)
	}
	// A table is read from end to end only where it holds no history; an index
	// is only where it holds what is open, or where a LIMIT ends the walk.
	walks := regexp.MustCompile(`Seq Scan on (job|event|record|reply|dependency|run|run_hook) |Parallel`)
	for _, step := range plan {
		if walks.MatchString(step) {
			t.Errorf("%s: the plan has the step %q", hot.Name, step)
		}
	}
	sorts := slices.ContainsFunc(plan, func(step string) bool { return strings.Contains(step, "Sort  (") })
	if sorts && !hot.Sorts && !hot.List && hot.Name != "children" { // the jobs of one PRD may be sorted
		t.Errorf("%s: the plan sorts", hot.Name)
	}
	if hot.List && cost(t, plan[0]) > 300 {
		t.Errorf("%s: the plan costs as much as the history is long", hot.Name)
	}
}

// cost is what the database thinks that a plan costs, in pages.
func cost(t *testing.T, top string) float64 {
	t.Helper()
	_, rest, _ := strings.Cut(top, "..")
	text, _, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatalf("no cost in %q: %v", top, err)
	}
	return n
}
