package audit

import (
	"context"
	"sync/atomic"
)

type requestKey struct{}

// request is what is known of the request that a door serves.
type request struct {
	id    string
	noted atomic.Bool
}

// WithRequest returns a context that carries the id of the request which a
// door serves.
func WithRequest(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestKey{}, &request{id: id})
}

// RequestOf returns the id of the request of a context, or "". The store puts
// it into records that have none.
func RequestOf(ctx context.Context) string {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r.id
	}
	return ""
}

// Note says that the request of a context has a record, or is counted in one.
// The store says so of what it appends.
func Note(ctx context.Context) {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		r.noted.Store(true)
	}
}

// Noted reports whether the request of a context has a record: then nobody has
// to write another about its refusal.
func Noted(ctx context.Context) bool {
	r, ok := ctx.Value(requestKey{}).(*request)
	return ok && r.noted.Load()
}
