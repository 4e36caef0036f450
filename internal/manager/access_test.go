package manager

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/build"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/store"
)

// TestKeysLiveAndDie follows a key from its making to its end.
func TestKeysLiveAndDie(t *testing.T) {
	t.Parallel()
	m := open(t, t.TempDir())
	now := time.Now()
	m.Now = func() time.Time { return now }
	ctx := local()
	viewer, secret, err := m.CreateKey(ctx, policy.KeyRequest{Kind: policy.Viewer, Name: "v", ExpiresAt: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.Authenticate(ctx, secret)
	if err != nil || c.Kind != policy.Viewer || c.ID != viewer.ID {
		t.Fatalf("%+v %v", c, err)
	}
	if list, err := m.Keys(ctx); err != nil || len(list) != 1 || list[0].UsedAt.IsZero() {
		t.Errorf("its use was not written down: %+v %v", list, err)
	}
	now = now.Add(time.Hour)
	if _, err := m.Authenticate(ctx, secret); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("it is good after its time: %v", err)
	}
	other, secret, err := m.CreateKey(ctx, policy.KeyRequest{Kind: policy.Operator, Scope: policy.Scope{Owner: "team"}})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := m.Authenticate(ctx, secret); err != nil || c.ID != "team" || c.SeesAll() {
		t.Fatalf("%+v %v", c, err)
	}
	for range 2 { // again is a success
		if k, err := m.RevokeKey(ctx, other.ID); err != nil || k.RevokedAt.IsZero() {
			t.Fatal(err)
		}
	}
	if _, err := m.Authenticate(ctx, secret); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("a revoked key is good: %v", err)
	}
	if _, err := m.RevokeKey(ctx, "no-such"); !fault.Is(err, fault.NotFound) {
		t.Errorf("revoke a key that is not there: %v", err)
	}
	wantAudit(t, m, secret, "key.created", "key.created", "key.revoked")
}

// wantAudit expects actions in the audit, in order, and a secret nowhere.
func wantAudit(t *testing.T, m *Manager, secret string, actions ...string) {
	t.Helper()
	var got []string
	err := m.Store.View(t.Context(), func(tx store.Tx) error {
		list, err := tx.Audit().List(t.Context(), audit.Filter{}, 100)
		for i := range list {
			got = append(got, list[i].Action)
			if strings.Contains(string(list[i].Canonical()), secret) {
				t.Errorf("the audit holds a secret: %s", list[i].Canonical())
			}
		}
		return err
	})
	if err != nil || strings.Join(got, " ") != strings.Join(actions, " ") {
		t.Errorf("the audit has %v: %v", got, err)
	}
}

// TestNobodyLocksThemselvesOut holds that a key which can make keys stays, and
// that nobody ends keys above their own.
func TestNobodyLocksThemselvesOut(t *testing.T) {
	t.Parallel()
	m := open(t, t.TempDir())
	ctx := local()
	add := func(req policy.KeyRequest) policy.Key {
		k, _, err := m.CreateKey(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	admin := add(policy.KeyRequest{Kind: policy.Admin})
	add(policy.KeyRequest{Kind: policy.Admin, ExpiresAt: time.Now().Add(time.Hour)})
	add(policy.KeyRequest{Kind: policy.Admin, Scope: policy.Scope{Owner: "o"}})
	if _, err := m.RevokeKey(ctx, admin.ID); fault.CodeOf(err) != "last_admin" {
		t.Errorf("the last admin key: %v", err)
	}
	director := policy.With(context.Background(), policy.Caller{Kind: policy.Director, ID: "d"})
	if _, err := m.RevokeKey(director, admin.ID); !fault.Is(err, fault.Denied) {
		t.Errorf("a director revokes an admin: %v", err)
	}
	if _, _, err := m.CreateKey(director, policy.KeyRequest{Kind: policy.Admin}); !fault.Is(err, fault.Denied) {
		t.Errorf("a director makes an admin: %v", err)
	}
	add(policy.KeyRequest{Kind: policy.Admin})
	if _, err := m.RevokeKey(ctx, admin.ID); err != nil {
		t.Error(err)
	}
}

// TestKeysWhileTheDatabaseIsAway holds that who was here before is still known.
func TestKeysWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	m := open(t, t.TempDir())
	now := time.Now()
	m.Now = func() time.Time { return now }
	_, known, err := m.CreateKey(local(), policy.KeyRequest{Kind: policy.Operator})
	if err != nil {
		t.Fatal(err)
	}
	_, unknown, err := m.CreateKey(local(), policy.KeyRequest{Kind: policy.Operator})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Authenticate(local(), known); err != nil {
		t.Fatal(err)
	}
	m.Store = away{m.Store}
	now = now.Add(keyStale - time.Second)
	if _, err := m.Authenticate(local(), known); err != nil {
		t.Errorf("a key that was used before: %v", err)
	}
	if _, err := m.Authenticate(local(), unknown); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a key that nobody has used: %v", err)
	}
	now = now.Add(time.Second)
	if _, err := m.Authenticate(local(), known); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a key that was used long ago: %v", err)
	}
}

// away is a store that cannot be read.
type away struct{ store.Store }

func (away) View(context.Context, func(store.Tx) error) error {
	return fault.New(fault.Unavailable, "the database is away")
}

// TestPause shows what a pause holds back, what it does not, and that it
// outlives a restart.
func TestPause(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	m := open(t, folder)
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	plan := job.PRD{Title: "t", Tasks: []job.Task{{Title: "x"}}}
	before, err := m.SubmitPRD(local(), plan, "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.SetPause(local(), true, " "); !fault.Is(err, fault.Invalid) {
		t.Errorf("without a reason: %v", err)
	}
	if p, err := m.SetPause(local(), true, "an incident"); err != nil || !p.Paused || p.Actor != "local" {
		t.Fatalf("%+v %v", p, err)
	}
	if _, err := m.SetPause(local(), true, "again"); fault.CodeOf(err) != "already_paused" {
		t.Errorf("twice: %v", err)
	}
	m.Stop()
	m = open(t, folder)
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"a plan": second(m.SubmitPRD(local(), plan, "", "")), "a run": second(m.SubmitRuns(local(), []run.Request{{Code: "1", Language: "python"}}, run.Asked{})),
		"a claim": second(m.Claim(local(), before.JobIDs[0], "w")), "a build": second(m.BuildImage(local(), "", build.Order{Name: "x", Tag: "y"}, nil, nil)),
		"a sandbox": third(m.CreateSandbox(local(), live.Request{})),
	} {
		if fault.CodeOf(err) != policy.CodePaused || !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if leased, err := m.Queue.Lease(t.Context(), job.Worker{ID: "w", Role: job.DefaultRole}, 1); err != nil || len(leased) != 0 {
		t.Errorf("the queue hands out %v: %v", leased, err)
	}
	if j, err := m.Job(local(), before.JobIDs[0]); err != nil || j.ID == "" {
		t.Errorf("look at a job: %v", err)
	}
	if _, err := m.SetPause(local(), false, "it is over"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.SetPause(local(), false, "again"); fault.CodeOf(err) != "not_paused" {
		t.Errorf("resumed twice: %v", err)
	}
	if _, err := m.Claim(local(), before.JobIDs[0], "w"); err != nil {
		t.Errorf("after it: %v", err)
	}
	wantAudit(t, m, "no secret", "organisation.paused", "organisation.resumed")
}

func second[T any](_ T, err error) error { return err }

func third[T, U any](_ T, _ U, err error) error { return err }
