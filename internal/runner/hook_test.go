package runner

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/store"
)

func TestWebhooksGoToPublicAddressesOnly(t *testing.T) {
	t.Parallel()
	public, private := HookTerms{Secret: []byte("secret")}, HookTerms{Secret: []byte("secret"), Private: true}
	for _, address := range []string{
		"", "x", "http://example.org", "ftp://example.org", "https://", "https://u:p@example.org", "https://example.org/#x", "https://127.0.0.1/", "https://[::1]/",
		"https://10.1.2.3/", "https://192.168.0.1", "https://169.254.169.254/latest", "https://100.64.0.1", "https://0.0.0.0", "https://[::ffff:127.0.0.1]/",
		"https://[fe80::1]/", "https://[fd00::1]/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/", "https://224.0.0.1", "https://255.255.255.255",
	} {
		if err := public.Check(address); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q was let through: %v", address, err)
		}
	}
	for _, address := range []string{"https://example.org/hook?x=1", "https://93.184.215.14:8443", "https://[2606:2800:21f:cb07::1]/"} {
		if err := public.Check(address); err != nil {
			t.Errorf("%q: %v", address, err)
		}
	}
	if err := private.Check("http://127.0.0.1:1/"); err != nil {
		t.Error(err)
	}
	if err := (HookTerms{}).Check("https://example.org"); !fault.Is(err, fault.Invalid) {
		t.Errorf("without a secret: %v", err)
	}
	if private.allowed(netip.MustParseAddr("0.0.0.0")) {
		t.Error("nobody is at 0.0.0.0")
	}
}

// TestANameThatStandsForThisMachineIsNotCalled has a name that passes the check
// of its text: what counts is the address that is about to be called.
func TestANameThatStandsForThisMachineIsNotCalled(t *testing.T) {
	t.Parallel()
	var called atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called.Store(true) }))
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := HookTerms{Secret: []byte("s")}.client().Do(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	if err == nil || called.Load() {
		t.Errorf("it was called: %v", err)
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
	cfg.Hooks = HookTerms{Secret: secret, Private: true}
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
	if c.header.Get("X-Aurea-Signature") != Sign(secret, at, c.body) || c.header.Get("X-Aurea-Delivery") != x.ID {
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

// TestAddressesOfWebhooksAreNotSaid calls webhooks that cannot be reached: what is
// said of them goes into the log, and their addresses often hold a secret.
func TestAddressesOfWebhooksAreNotSaid(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close() // so that nobody answers
	cfg := config(t, newBench().worker(1))
	cfg.Hooks = HookTerms{Secret: []byte("a secret of some length"), Private: true}
	r := New(cfg)
	err := r.post(t.Context(), cfg.Hooks.client(), store.Hook{URL: server.URL + "/canary?token=canary"}, &run.Run{ID: "r"})
	if err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("it says %v", err)
	}
}
