package wire_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/dispatch/wire"
	"github.com/aurea-dev/aurea/internal/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// as stands for the middleware in front.
func as(c policy.Caller, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(policy.With(r.Context(), c)))
	})
}

// connect puts a manager behind a real socket and returns what a worker has.
func connect(t *testing.T, m dispatch.Manager, secure bool) *wire.Client {
	t.Helper()
	return connectThrough(t, m, secure, func(next http.Handler) http.Handler { return next })
}

func connectThrough(t *testing.T, m dispatch.Manager, secure bool, front func(http.Handler) http.Handler) *wire.Client {
	t.Helper()
	door := wire.Handler(m, quiet())
	srv := httptest.NewUnstartedServer(front(as(policy.LocalCaller(), door)))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	opts := wire.Options{}
	if secure {
		srv.EnableHTTP2 = true
		srv.StartTLS()
		opts.TLS = srv.Client().Transport.(*http.Transport).TLSClientConfig
	} else {
		srv.Start()
	}
	c, err := wire.NewClient(srv.URL+"/", "", opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		door.Close()
		c.Close()
		srv.Close()
	})
	return c
}

func TestContractOverTheWire(t *testing.T) {
	t.Parallel()
	dispatchtest.Run(t, dispatchtest.Harness{New: func(t *testing.T) (dispatch.Manager, dispatchtest.Control) {
		ref := dispatchtest.NewReference()
		return connect(t, ref, false), ref
	}})
}

// Over TLS the calls speak HTTP/2, and the stream must still find its HTTP/1.1
// to upgrade from.
func TestContractOverTLS(t *testing.T) {
	t.Parallel()
	dispatchtest.Run(t, dispatchtest.Harness{New: func(t *testing.T) (dispatch.Manager, dispatchtest.Control) {
		ref := dispatchtest.NewReference()
		return connect(t, ref, true), ref
	}})
}

func TestBadAddressesAreRefused(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "manager:8000", "ftp://manager", "http://", "http://u:p@manager", "http://manager?x=1", "http://manager/#x", "http://[::1"} {
		if _, err := wire.NewClient(address, "", wire.Options{}); err == nil || !strings.Contains(err.Error(), "manager_url") {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := wire.NewClient("http://manager", "two words", wire.Options{}); err == nil {
		t.Error("a key that is no header was taken")
	}
}
