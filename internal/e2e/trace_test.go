package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
)

// seenSpan is a span as a collector gets it.
type seenSpan struct {
	TraceID      string `json:"traceId"`
	SpanID       string `json:"spanId"`
	ParentSpanID string `json:"parentSpanId"`
	Name         string `json:"name"`
	service      string
}

// collect is a collector of traces, over OTLP/HTTP.
func collect(t *testing.T) (address string, spans func() []seenSpan) {
	t.Helper()
	var mu sync.Mutex
	var all []seenSpan
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct {
			ResourceSpans []struct {
				Resource struct {
					Attributes []struct{ Value struct{ StringValue string } }
				}
				ScopeSpans []struct{ Spans []seenSpan }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range body.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, span := range ss.Spans {
					span.service = rs.Resource.Attributes[0].Value.StringValue
					all = append(all, span)
				}
			}
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, func() []seenSpan { mu.Lock(); defer mu.Unlock(); return all }
}

// TestTrace follows a request of a client that traces from the door over the
// queue to the exec on the worker: one trace, each span under the one that led
// to it, in both processes.
func TestTrace(t *testing.T) {
	t.Parallel()
	collector, spans := collect(t)
	port := freePort(t)
	p, err := start([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector}, nil,
		"up", "--data", filepath.Join(dataFolder(t), "data"), "--driver", "fake", "--port", fmt.Sprint(port), "--bridge-port", "0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = p.stop() })
	if err := p.expect("Ctrl-C stops everything in order."); err != nil {
		t.Fatal(err)
	}
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	a, err := newAsker(t, fmt.Sprintf("http://127.0.0.1:%d", port)).ask(t.Context(), http.MethodPost, "/prds",
		[]byte(`{"title":"traced","tasks":[{"payload":{"action":"exec","command":["echo","hello"]}}]}`), "traceparent", "00-"+trace+"-"+parent+"-01")
	if err != nil || a.status != http.StatusCreated {
		t.Fatal(a, err)
	}
	led := []struct{ name, under, service string }{
		{"POST /prds", "", "aurea-manager"},
		{"queue.submit", "POST /prds", "aurea-manager"},
		{"queue.wait", "queue.submit", "aurea-manager"},
		{"job.try", "queue.submit", "aurea-worker"},
		{"sandbox.create", "job.try", "aurea-worker"},
		{"exec", "job.try", "aurea-worker"},
	}
	eventually(t, "the whole trace", func() (bool, string) {
		byName := map[string]seenSpan{"": {SpanID: parent}}
		for _, s := range spans() {
			if s.TraceID == trace {
				byName[s.Name] = s
			}
		}
		for _, want := range led {
			s, ok := byName[want.name]
			if !ok || s.ParentSpanID != byName[want.under].SpanID || s.service != want.service {
				return false, fmt.Sprintf("%s under %q: %+v", want.name, want.under, byName)
			}
		}
		return true, ""
	})
}
