package runner

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/webhook"
)

// TestAddressesOfWebhooksAreNotSaid calls webhooks that cannot be reached: what is
// said of them goes into the log, and their addresses often hold a secret.
func TestAddressesOfWebhooksAreNotSaid(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close() // so that nobody answers
	cfg := config(t, newBench().worker(1))
	cfg.Hooks = webhook.Terms{Secret: []byte("a secret of some length"), Private: true}
	r := New(cfg)
	err := r.post(t.Context(), cfg.Hooks.Client(webhook.CallTime), store.Hook{URL: server.URL + "/canary?token=canary"}, &run.Run{ID: "r"})
	if err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("it says %v", err)
	}
}

func TestTheEndOfARunIsTold(t *testing.T) {
	t.Parallel()
	secret := []byte("a secret of some length")
	type call struct {
		header http.Header
		body   []byte
	}
	calls := make(chan call, 10)
	var failures atomic.Int64
	failures.Store(1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if failures.Add(-1) >= 0 {
			http.Redirect(w, req, "/elsewhere", http.StatusTemporaryRedirect) // which is not followed
			return
		}
		calls <- call{req.Header, body}
	}))
	defer server.Close()
	b := newBench()
	cfg := config(t, b.worker(1))
	cfg.Hooks = webhook.Terms{Secret: secret, Private: true}
	var ahead atomic.Int64 // nobody waits for the second try
	cfg.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	var fence int64
	err := cfg.Store.Update(t.Context(), func(tx store.Tx) (err error) {
		fence, _, err = tx.Leaders().Acquire(t.Context(), "m", time.Now(), time.Hour, false)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Fence = func() int64 { return fence }
	r := start(t, cfg)
	s, err := r.SubmitRuns(as("o"), []run.Request{{Code: "say:secret exit", Webhook: server.URL}}, run.Asked{})
	if err != nil {
		t.Fatal(err)
	}
	x := finished(t, r, "o", s.Runs[0].ID)
	for failures.Load() >= 0 { // until the first try has failed
		ahead.Add(int64(time.Second))
		r.arrived.Wake()
		time.Sleep(time.Millisecond) // bounded by the test's own deadline
	}
	c := <-calls
	at := c.header.Get("X-Aurea-Timestamp")
	if c.header.Get("X-Aurea-Signature") != webhook.Sign(secret, at, c.body) || c.header.Get("X-Aurea-Delivery") != x.ID {
		t.Errorf("the headers are %v", c.header)
	}
	want := `"status":"COMPLETED","verdict":"failed","exit_code":3`
	if !bytes.Contains(c.body, []byte(want)) || bytes.Contains(c.body, []byte("say:secret")) {
		t.Errorf("it is told %s", c.body)
	}
	for {
		var due []store.Hook
		_ = cfg.Store.View(t.Context(), func(tx store.Tx) (err error) {
			due, err = tx.Hooks().Due(t.Context(), time.Now().Add(24*time.Hour), 10)
			return err
		})
		if len(due) == 0 {
			break
		}
		time.Sleep(time.Millisecond) // until the answer is written down; bounded as above
	}
	if len(calls) != 0 {
		t.Error("it was told twice")
	}
}
