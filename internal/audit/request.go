package audit

import "context"

type requestKey struct{}

// WithRequest returns a context that carries the id of the request which a
// door serves.
func WithRequest(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestKey{}, id)
}

// RequestOf returns the id of the request of a context, or "". The store puts
// it into records that have none.
func RequestOf(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}
