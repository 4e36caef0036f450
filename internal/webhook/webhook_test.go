package webhook

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

func TestWebhooksGoToPublicAddressesOnly(t *testing.T) {
	t.Parallel()
	public, private := Terms{Secret: []byte("secret")}, Terms{Secret: []byte("secret"), Private: true}
	for _, address := range []string{
		"", "x", "http://example.org", "ftp://example.org", "https://", "https://u:p@example.org", "https://example.org/#x", "https://127.0.0.1/", "https://[::1]/",
		"https://10.1.2.3/", "https://192.168.0.1", "https://169.254.169.254/latest", "https://100.64.0.1", "https://0.0.0.0", "https://[::ffff:127.0.0.1]/",
		"https://[fe80::1]/", "https://[fd00::1]/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/", "https://224.0.0.1", "https://255.255.255.255",
	} {
		if err := public.Check("webhook", address); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q was let through: %v", address, err)
		}
	}
	for _, address := range []string{"https://example.org/hook?x=1", "https://93.184.215.14:8443", "https://[2606:2800:21f:cb07::1]/"} {
		if err := public.Check("webhook", address); err != nil {
			t.Errorf("%q: %v", address, err)
		}
	}
	if err := private.Check("webhook", "http://127.0.0.1:1/"); err != nil {
		t.Error(err)
	}
	if err := (Terms{}).Check("webhook", "https://example.org"); !fault.Is(err, fault.Invalid) {
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
	resp, err := Terms{Secret: []byte("s")}.Client(CallTime).Do(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	if err == nil || called.Load() {
		t.Errorf("it was called: %v", err)
	}
}

// TestAnErrorDoesNotNameTheAddress: there may be a secret in it, and errors go to
// logs and records.
func TestAnErrorDoesNotNameTheAddress(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	terms := Terms{Secret: []byte("secret"), Private: true}
	call := Call{URL: server.URL + "/canary", Event: "e", Delivery: "d", Body: []byte("{}")}
	if _, err := terms.Post(t.Context(), terms.Client(CallTime), call, time.Now()); err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("an answer of 404 is %v", err)
	}
	server.Close()
	if _, err := terms.Post(t.Context(), terms.Client(CallTime), call, time.Now()); err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("nobody there is %v", err)
	}
}

func TestAgainWaitsLongerEachTime(t *testing.T) {
	t.Parallel()
	for tries, want := range map[int]time.Duration{0: 5 * time.Second, 1: 5 * time.Second, 2: 10 * time.Second, 4: 40 * time.Second, 12: time.Hour, 1 << 40: time.Hour} {
		if got := Again(tries); got != want {
			t.Errorf("after %d tries it waits %s, want %s", tries, got, want)
		}
	}
}

// TestAClientHasTheTimeThatItIsGiven: who asks a hook before a kill may wait longer
// than who only tells one.
func TestAClientHasTheTimeThatItIsGiven(t *testing.T) {
	t.Parallel()
	for _, most := range []time.Duration{time.Second, 3 * CallTime} {
		c := Terms{}.Client(most)
		if transport, ok := c.Transport.(*http.Transport); !ok || c.Timeout != most || transport.ResponseHeaderTimeout != most || transport.TLSHandshakeTimeout > CallTime {
			t.Errorf("with %s: %+v", most, c)
		}
	}
}
