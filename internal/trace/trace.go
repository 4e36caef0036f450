// Package trace follows a request from the door to the sandbox, across
// processes: spans with W3C trace context, sent to a collector over OTLP/HTTP.
//
// It is off unless a collector is named. A nil Tracer is one that is off:
// every call on it, and on the nil Span that it gives, does nothing. Tracing
// never holds anything up: spans that the collector does not take in time are
// dropped and counted.
package trace

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"
)

// Parent is the place in a trace under which something happens.
type Parent struct {
	Trace   [16]byte
	Span    [8]byte
	Sampled bool
}

// Valid reports whether there is a trace at all.
func (p Parent) Valid() bool { return p.Trace != [16]byte{} && p.Span != [8]byte{} }

// String returns the place as a traceparent header, "" when there is none.
func (p Parent) String() string {
	if !p.Valid() {
		return ""
	}
	flags := "00"
	if p.Sampled {
		flags = "01"
	}
	return "00-" + hex.EncodeToString(p.Trace[:]) + "-" + hex.EncodeToString(p.Span[:]) + "-" + flags
}

// Parse reads a traceparent header. What is none gives no place: it comes from
// outside, and a bad one is as good as none.
func Parse(header string) Parent {
	var p Parent
	if len(header) < 55 || len(header) > 200 || strings.ToLower(header) != header {
		return Parent{}
	}
	version, trace, span, flags := header[:2], header[3:35], header[36:52], header[53:55]
	if version == "ff" || version == "00" && len(header) != 55 || len(header) > 55 && header[55] != '-' ||
		header[2] != '-' || header[35] != '-' || header[52] != '-' {
		return Parent{}
	}
	var bits [2]byte // of the version, and of the flags
	_, err := hex.Decode(bits[:], []byte(version+flags))
	if err == nil {
		_, err = hex.Decode(p.Trace[:], []byte(trace))
	}
	if err == nil {
		_, err = hex.Decode(p.Span[:], []byte(span))
	}
	if err != nil || !p.Valid() {
		return Parent{}
	}
	p.Sampled = bits[1]&1 == 1
	return p
}

type key struct{}

// With returns a context in which what happens does so under p.
func With(ctx context.Context, p Parent) context.Context { return context.WithValue(ctx, key{}, p) }

// From returns the place of a context; it is not valid when there is none.
func From(ctx context.Context) Parent {
	p, _ := ctx.Value(key{}).(Parent)
	return p
}

// Kind is the kind of a span, with the numbers of OTLP.
type Kind int

// The kinds.
const (
	Internal Kind = 1
	Server   Kind = 2
	Producer Kind = 4
	Consumer Kind = 5
)

// Span is something that takes time. It belongs to one goroutine.
type Span struct {
	tracer     *Tracer
	place      Parent
	parent     [8]byte
	name       string
	kind       Kind
	began      time.Time
	attributes []attribute
	failure    string
}

// Start begins a span under the place of ctx, or a new trace where there is
// none. The returned context has the span's own place.
func (t *Tracer) Start(ctx context.Context, name string, kind Kind) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	s := t.begin(From(ctx), name, kind, time.Now())
	return With(ctx, s.place), s
}

// Record notes a span that has passed, under a place. Without a place there is
// nothing that it would belong to.
func (t *Tracer) Record(under Parent, name string, kind Kind, began, ended time.Time, attributes ...string) {
	if t == nil || !under.Valid() {
		return
	}
	s := t.begin(under, name, kind, began)
	for i := 0; i+1 < len(attributes); i += 2 {
		s.Set(attributes[i], attributes[i+1])
	}
	s.endAt(ended)
}

func (t *Tracer) begin(under Parent, name string, kind Kind, began time.Time) *Span {
	s := &Span{tracer: t, name: name, kind: kind, began: began, place: Parent{Trace: under.Trace, Sampled: true}}
	if under.Valid() {
		s.parent, s.place.Sampled = under.Span, under.Sampled
	} else {
		_, _ = rand.Read(s.place.Trace[:]) // never fails
	}
	_, _ = rand.Read(s.place.Span[:])
	return s
}

// Set adds a fact about the span.
func (s *Span) Set(name, value string) {
	const most, longest = 32, 512
	if s == nil || len(s.attributes) >= most {
		return
	}
	if len(value) > longest {
		value = strings.ToValidUTF8(value[:longest], "")
	}
	s.attributes = append(s.attributes, attribute{Key: name, Value: text{value}})
}

// Fail says that what the span stands for went wrong; nil changes nothing.
func (s *Span) Fail(err error) {
	if s != nil && err != nil {
		s.failure = err.Error()
	}
}

// Rename gives the span a better name than it could have at its beginning.
func (s *Span) Rename(name string) {
	if s != nil && name != "" {
		s.name = name
	}
}

// End ends the span.
func (s *Span) End() {
	if s != nil {
		s.endAt(time.Now())
	}
}

func (s *Span) endAt(at time.Time) {
	if s.place.Sampled {
		s.tracer.take(s.wire(at))
	}
}
