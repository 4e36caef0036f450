package wire_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/wire"
	"github.com/aurea-dev/aurea/internal/fault"
)

func client(t *testing.T, address, key string) *wire.Client {
	t.Helper()
	c, err := wire.NewClient(address, key, wire.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestTheKeyGoesAlongAndNowhereElse(t *testing.T) {
	t.Parallel()
	var stolen bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen = true }))
	defer other.Close()
	var seen []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	c := client(t, srv.URL, "aurea_worker_x")
	for name, err := range map[string]error{
		"leave":  c.Leave(t.Context(), "s"),
		"attend": c.Attend(t.Context(), "s", receiver(nil)),
		"blob":   c.PutBlob(t.Context(), "s", strings.Repeat("0", 64), 1, strings.NewReader("x")),
	} {
		if !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if stolen || len(seen) != 3 {
		t.Errorf("stolen: %v, seen %d", stolen, len(seen))
	}
	for _, s := range seen {
		if s != "Bearer aurea_worker_x" {
			t.Errorf("sent %q", s)
		}
	}
}

// Whatever answers in the manager's place, a worker gets a fault that it can
// act on.
func TestAnswersOfOthers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		status int
		kind   string
		body   string
		want   fault.Kind
		code   string
	}{
		{"a proxy without a manager", 502, "text/html", "<h1>bad gateway</h1>", fault.Unavailable, ""},
		{"a captive portal", 200, "text/html", "<h1>log in</h1>", fault.Unavailable, ""},
		{"an empty answer", 200, "application/json", "", fault.Unavailable, ""},
		{"the middleware's refusal", 401, "application/problem+json", `{"status":401,"code":"bad_key","detail":"the key is revoked"}`, fault.Unauthenticated, "bad_key"},
		{"a problem that is none", 409, "application/problem+json", `{"status":`, fault.Conflict, ""},
		{"a problem that lies about its status", 503, "application/json", `{"status":200}`, fault.Unavailable, ""},
		{"a teapot", 418, "", "", fault.Unavailable, ""},
		{"an endless problem", 403, "application/json", `{"detail":"` + strings.Repeat("x", 1<<20), fault.Denied, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.kind)
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			}))
			defer srv.Close()
			c := client(t, srv.URL, "")
			err := c.Leave(t.Context(), "s")
			if !fault.Is(err, tc.want) || tc.code != "" && fault.CodeOf(err) != tc.code {
				t.Errorf("got %v of kind %s, want kind %s", err, fault.KindOf(err), tc.want)
			}
			if err := c.Attend(t.Context(), "s", receiver(nil)); err == nil {
				t.Error("a stream opened")
			}
		})
	}
}

func TestAManagerThatIsAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := client(t, "http://"+l.Addr().String(), "")
	_ = l.Close()
	_, lease := c.Lease(t.Context(), dispatch.LeaseRequest{Session: "secret-session", Max: 1})
	for name, err := range map[string]error{
		"lease": lease, "leave": c.Leave(t.Context(), "secret-session"), "attend": c.Attend(t.Context(), "secret-session", receiver(nil)),
		"blob": c.PutBlob(t.Context(), "secret-session", strings.Repeat("0", 64), 1, strings.NewReader("x")),
	} {
		if !fault.Is(err, fault.Unavailable) || strings.Contains(err.Error(), "secret-session") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheEndOfCtxIsTheCause(t *testing.T) {
	t.Parallel()
	c := connect(t, scripted{lease: func(ctx context.Context, _ dispatch.LeaseRequest) ([]dispatch.Lease, error) {
		<-ctx.Done()
		return nil, nil
	}}, false)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the worker drains")
	cancel(cause)
	_, err := c.Lease(ctx, dispatch.LeaseRequest{Session: "s", Max: 1, Wait: dispatch.MaxWait})
	if !fault.Is(err, fault.Unavailable) || !errors.Is(err, cause) {
		t.Errorf("lease: %v", err)
	}
	if err := c.Attend(ctx, "s", receiver(nil)); !fault.Is(err, fault.Unavailable) || !errors.Is(err, cause) {
		t.Errorf("attend: %v", err)
	}
}

func TestACallOverTheBoundIsNotSent(t *testing.T) {
	t.Parallel()
	c := client(t, "http://127.0.0.1:1", "")
	req := dispatch.ReportRequest{Session: "s"}
	data := make([]byte, dispatch.MaxChunk)
	for i := range dispatch.MaxReports {
		req.Items = append(req.Items, dispatch.ReportItem{
			Held:   dispatch.Held{JobID: "j", Fence: 1},
			Output: &dispatch.Chunk{Stream: 1, Offset: int64(i), Data: data},
		})
	}
	if _, err := c.Report(t.Context(), req); !fault.Is(err, fault.TooLarge) {
		t.Errorf("got %v", err)
	}
}

func TestABlobThatIsThereIsNotSent(t *testing.T) {
	t.Parallel()
	// The client asks first. How many bytes go if the answer is slow is a
	// matter of luck, and not looked at.
	c := connectThrough(t, scripted{putBlob: func(context.Context, io.Reader) error { return nil }}, false, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Expect") != "100-continue" {
				t.Error("the client did not ask before it sent")
			}
			next.ServeHTTP(w, r)
		})
	})
	for range 20 {
		if err := c.PutBlob(t.Context(), "s", strings.Repeat("0", 64), 8<<20, bytes.NewReader(make([]byte, 8<<20))); err != nil {
			t.Fatal(err)
		}
	}
}

type counting struct {
	r io.Reader
	n int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func TestABlobIsReadOnlyWhileItIsSent(t *testing.T) {
	t.Parallel()
	// The manager refuses half-way; counting would race if anything read on.
	c := connect(t, scripted{putBlob: func(_ context.Context, r io.Reader) error {
		_, _ = io.CopyN(io.Discard, r, 1<<20)
		return fault.New(fault.Exhausted, "the disk is full").WithCode("disk_full")
	}}, false)
	for range 5 {
		r := &counting{r: bytes.NewReader(make([]byte, 64<<20))}
		err := c.PutBlob(t.Context(), "s", strings.Repeat("0", 64), 64<<20, r)
		if err == nil {
			t.Fatal("it was stored")
		}
		r.n = 0
	}
}

func TestAReaderThatFailsIsNotTheManagersFault(t *testing.T) {
	t.Parallel()
	c := connect(t, scripted{putBlob: func(_ context.Context, r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	}}, false)
	broken := errors.New("the disk broke")
	err := c.PutBlob(t.Context(), "s", strings.Repeat("0", 64), 2, io.MultiReader(strings.NewReader("x"), failing{broken}))
	if !fault.Is(err, fault.Internal) || !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	err = c.PutBlob(t.Context(), "s", strings.Repeat("0", 64), 0, strings.NewReader("x"))
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("bytes that were not announced: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestABlobArrivesWhole(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	sum := sha256.Sum256(data)
	var got [sha256.Size]byte
	c := connect(t, scripted{putBlob: func(_ context.Context, r io.Reader) error {
		h := sha256.New()
		_, err := io.Copy(h, r)
		got = [sha256.Size]byte(h.Sum(nil))
		return err
	}}, false)
	if err := c.PutBlob(t.Context(), "s", hex.EncodeToString(sum[:]), int64(len(data)), bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	if got != sum {
		t.Error("other bytes arrived")
	}
}
