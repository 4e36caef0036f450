package trace

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of what tracing may cost.
const (
	maxWaiting = 4096 // spans that wait to be sent
	maxBatch   = 512
	sendEvery  = 2 * time.Second
	sendTime   = 10 * time.Second
	lastTime   = 3 * time.Second // for what is left at the end
)

// Config is what a Tracer is made of.
type Config struct {
	// Endpoint is the base address of a collector, as in
	// OTEL_EXPORTER_OTLP_ENDPOINT; spans go to /v1/traces below it. "" is none.
	Endpoint string
	Service  string // "aurea-manager"
	Version  string
	Logger   *slog.Logger
	HTTP     *http.Client // nil is one of our own
}

// Tracer makes spans and sends them.
type Tracer struct {
	cfg     Config
	spans   chan span
	dropped atomic.Int64

	once   sync.Once
	ending chan struct{}
	ended  chan struct{}
}

// New starts a tracer; nil, which is off, when no collector is named.
func New(cfg Config) *Tracer {
	if cfg.Endpoint == "" {
		return nil
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.HTTP == nil {
		cfg.HTTP = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()} //nolint:forcetypeassert // the standard library's own
	}
	t := &Tracer{cfg: cfg, spans: make(chan span, maxWaiting), ending: make(chan struct{}), ended: make(chan struct{})}
	go t.run()
	return t
}

// Close sends what is left, within a bound, and ends the tracer. Spans that end
// later are dropped. Closing twice is harmless.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	t.once.Do(func() { close(t.ending) })
	<-t.ended
}

// take hands over a span, or drops it.
func (t *Tracer) take(s span) {
	select {
	case t.spans <- s:
	default:
		t.dropped.Add(1)
	}
}

func (t *Tracer) run() {
	defer close(t.ended)
	defer t.cfg.HTTP.CloseIdleConnections()
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	var batch []span
	for {
		select {
		case s := <-t.spans:
			if batch = append(batch, s); len(batch) >= maxBatch {
				t.send(batch, sendTime)
				batch = nil
			}
		case <-tick.C:
			t.send(batch, sendTime)
			batch = nil
		case <-t.ending:
			for {
				select {
				case s := <-t.spans:
					batch = append(batch, s)
					continue
				default:
				}
				t.send(batch, lastTime)
				return
			}
		}
	}
}

var errSlow = errors.New("the collector took too long")

// send sends a batch once. What fails is dropped: a trace is not evidence.
func (t *Tracer) send(batch []span, within time.Duration) {
	if len(batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), within, errSlow)
	defer cancel()
	if err := t.post(ctx, batch); err != nil {
		t.dropped.Add(int64(len(batch)))
		t.cfg.Logger.Warn("the collector does not take traces", "error", err, "dropped", t.dropped.Load())
	}
}

func (t *Tracer) post(ctx context.Context, batch []span) error {
	resource := []attribute{{"service.name", text{t.cfg.Service}}, {"service.version", text{t.cfg.Version}}}
	body, err := json.Marshal(export{[]resourceSpans{{
		Resource: attributes{resource}, ScopeSpans: []scopeSpans{{Scope: scope{"aurea"}, Spans: batch}},
	}}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(t.cfg.Endpoint, "/")+"/v1/traces", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := t.cfg.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.CopyN(io.Discard, res.Body, 64<<10) // so that the connection can be used again
	if res.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("it answers %s", res.Status)
	}
	return nil
}

// The shapes of OTLP in JSON: ids in hex, numbers of 64 bits as strings.
type (
	export struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   attributes   `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name string `json:"name"`
	}
	attributes struct {
		Attributes []attribute `json:"attributes"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value text   `json:"value"`
	}
	text struct {
		Text string `json:"stringValue"`
	}
	span struct {
		TraceID    string      `json:"traceId"`
		SpanID     string      `json:"spanId"`
		ParentID   string      `json:"parentSpanId,omitempty"`
		Name       string      `json:"name"`
		Kind       Kind        `json:"kind"`
		Began      string      `json:"startTimeUnixNano"`
		Ended      string      `json:"endTimeUnixNano"`
		Attributes []attribute `json:"attributes,omitempty"`
		Status     *status     `json:"status,omitempty"`
	}
	status struct {
		Code    int    `json:"code"`
		Message string `json:"message,omitempty"`
	}
)

func (s *Span) wire(ended time.Time) span {
	out := span{
		TraceID: hex.EncodeToString(s.place.Trace[:]), SpanID: hex.EncodeToString(s.place.Span[:]), Name: s.name, Kind: s.kind,
		Began: strconv.FormatInt(s.began.UnixNano(), 10), Ended: strconv.FormatInt(max(ended.UnixNano(), s.began.UnixNano()), 10),
		Attributes: s.attributes,
	}
	if s.parent != [8]byte{} {
		out.ParentID = hex.EncodeToString(s.parent[:])
	}
	if s.failure != "" {
		const failed = 2
		out.Status = &status{failed, s.failure}
	}
	return out
}
