package trace_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type sent struct {
	TraceID, SpanID, ParentSpanID, Name, StartTimeUnixNano string
	Kind                                                   int
	Status                                                 *struct{ Code int }
}

// collector is a receiver of OTLP/HTTP.
func collector(t *testing.T, answer int) (address string, spans func() []sent) {
	t.Helper()
	var mu sync.Mutex
	var all []sent
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			ResourceSpans []struct{ ScopeSpans []struct{ Spans []sent } }
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v", r.URL, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range body.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				all = append(all, ss.Spans...)
			}
		}
		w.WriteHeader(answer)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() []sent { mu.Lock(); defer mu.Unlock(); return all }
}

func TestSpansReachTheCollector(t *testing.T) {
	t.Parallel()
	address, spans := collector(t, 200)
	tr := trace.New(trace.Config{Endpoint: address + "/", Service: "test"})
	ctx, outer := tr.Start(t.Context(), "outer", trace.Server)
	_, inner := tr.Start(ctx, "inner", trace.Internal)
	inner.Fail(errors.New("oops"))
	inner.Set("key", strings.Repeat("x", 1000))
	inner.End()
	now := time.Now()
	tr.Record(trace.From(ctx), "past", trace.Consumer, now.Add(-time.Hour), now)
	tr.Record(trace.Parent{}, "nowhere", trace.Consumer, now, now)
	outer.End()
	tr.Close()
	tr.Close()
	got := map[string]sent{}
	for _, s := range spans() {
		got[s.Name] = s
	}
	if len(got) != 3 || got["outer"].ParentSpanID != "" || got["inner"].ParentSpanID != got["outer"].SpanID || got["past"].ParentSpanID != got["outer"].SpanID {
		t.Fatalf("%+v", got)
	}
	if got["inner"].TraceID != got["outer"].TraceID || len(got["outer"].TraceID) != 32 || got["inner"].Status.Code != 2 || got["outer"].Kind != 2 {
		t.Fatalf("%+v", got)
	}
}

// A collector that is broken, or away, holds nobody up.
func TestBrokenCollector(t *testing.T) {
	t.Parallel()
	address, _ := collector(t, 500)
	for _, endpoint := range []string{address, "http://127.0.0.1:1", "nonsense"} {
		tr := trace.New(trace.Config{Endpoint: endpoint})
		for range 10_000 {
			_, s := tr.Start(t.Context(), "x", trace.Internal)
			s.End()
		}
		tr.Close()
		_, s := tr.Start(t.Context(), "late", trace.Internal)
		s.End()
	}
}

func TestOffIsNothing(t *testing.T) {
	t.Parallel()
	tr := trace.New(trace.Config{})
	ctx, s := tr.Start(t.Context(), "x", trace.Internal)
	s.Set("a", "b")
	s.Fail(errors.New("x"))
	s.Rename("y")
	s.End()
	tr.Record(trace.Parent{}, "x", trace.Internal, time.Now(), time.Now())
	tr.Close()
	if tr != nil || s != nil || trace.From(ctx).Valid() {
		t.Fatal("it is on")
	}
}

func TestNotSampledIsNotSent(t *testing.T) {
	t.Parallel()
	address, spans := collector(t, 200)
	tr := trace.New(trace.Config{Endpoint: address})
	ctx := trace.With(t.Context(), trace.Parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"))
	ctx, s := tr.Start(ctx, "x", trace.Internal)
	s.End()
	tr.Close()
	if len(spans()) != 0 || !strings.HasSuffix(trace.From(ctx).String(), "-00") {
		t.Fatal(spans(), trace.From(ctx))
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		p := trace.Parse(header)
		if !p.Valid() {
			if p != (trace.Parent{}) || p.String() != "" {
				t.Fatalf("%q gives half a place", header)
			}
			return
		}
		if again := trace.Parse(p.String()); again != p || len(p.String()) != 55 || header[3:52] != p.String()[3:52] {
			t.Fatalf("%q became %q", header, p)
		}
	})
}
