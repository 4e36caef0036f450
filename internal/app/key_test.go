package app

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// TestDirectorKey shows what the director's key opens, and to whom.
func TestDirectorKey(t *testing.T) {
	t.Parallel()
	const secret = "a director's secret"
	ask := func(api http.Handler, path string, headers ...string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(`{"reason":"a test"}`))
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return w.Code
	}
	d := openDoors(t, "DIRECTOR_API_KEY="+secret)
	viewer, operator := "Bearer "+d.keys["viewer"], "Bearer "+d.keys["operator"]
	for _, c := range []struct {
		path    string
		headers []string
		want    int
	}{
		{"/admin/pause", []string{"Authorization", viewer}, 403},
		{"/admin/pause", []string{"Authorization", operator, "X-Director-Key", "wrong"}, 403},
		{"/admin/pause", []string{"Authorization", operator}, 200},
		{"/admin/resume", []string{"Authorization", operator}, 403},
		{"/admin/resume", nil, 401},
		{"/admin/resume", []string{"X-Director-Key", secret + "x"}, 403},
		{"/admin/resume", []string{"Authorization", "Bearer wrong", "X-Director-Key", secret}, 401},
		{"/admin/resume", []string{"Authorization", operator, "X-Director-Key", secret}, 200},
		{"/admin/pause", []string{"X-Director-Key", secret}, 200},
		{"/admin/resume", []string{"Authorization", "Bearer " + d.keys["admin"]}, 200},
	} {
		if got := ask(d.api, c.path, c.headers...); got != c.want {
			t.Errorf("POST %s with %d headers: %d, want %d", c.path, len(c.headers)/2, got, c.want)
		}
	}
	local := openDoors(t, "HOST=127.0.0.1", "DIRECTOR_API_KEY="+secret)
	host := []string{"X-Director-Key", ""}
	for _, c := range []struct {
		path, secret string
		want         int
	}{{"/admin/pause", "", 200}, {"/admin/resume", "", 403}, {"/admin/resume", "wrong", 403}, {"/admin/resume", secret, 200}} {
		host[1] = c.secret
		if got := ask(local.api, "http://localhost"+c.path, host...); got != c.want {
			t.Errorf("POST %s locally with %q: %d, want %d", c.path, c.secret, got, c.want)
		}
	}
	none := openDoors(t)
	if got := ask(none.api, "/admin/pause", "Authorization", "Bearer "+none.keys["admin"], "X-Director-Key", secret); got != 403 {
		t.Errorf("where there is no director's key: %d", got)
	}
}

// TestATokenEndsWithItsSandbox shows what a sandbox's token opens, and when it
// is over.
func TestATokenEndsWithItsSandbox(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	const self = "GET /api/v1/sandboxes/{sandbox}"
	if got := d.ask(self, "sandbox", true); got.status != http.StatusOK || !strings.Contains(got.body, d.ids["sandbox"]) {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := d.ask(self, "sandbox", false); got.status != http.StatusForbidden || got.code != "other_sandbox" {
		t.Errorf("another sandbox: %d %s", got.status, got.body)
	}
	ctx := context.WithoutCancel(t.Context())
	err := d.m.kept.store.Update(ctx, func(tx store.Tx) error {
		s, err := tx.Sandboxes().Get(ctx, d.ids["sandbox"])
		if err != nil {
			return err
		}
		s.State, s.EndedAt = sandbox.StateCompleted, time.Now()
		return tx.Sandboxes().Put(ctx, &s)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := d.ask(self, "sandbox", true); got.status != http.StatusUnauthorized {
		t.Errorf("after the end: %d %s", got.status, got.body)
	}
}
