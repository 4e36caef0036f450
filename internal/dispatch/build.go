package dispatch

import (
	"context"
	"io"

	"github.com/aurea-dev/aurea/internal/build"
)

// Builder is what a Receiver can be besides: one that builds images. It goes
// over the same command stream.
type Builder interface {
	// Build builds an image on the worker's machine. upload is the context
	// where the order says that one comes along, at most build.MaxContext bytes
	// and some for its headers; it is read to its end, or to the first error,
	// before tell is called. tell is called in order, one call at a time; an
	// error of tell, or the end of ctx, ends the build. A fault with the code
	// build_failed is about the Dockerfile.
	Build(ctx context.Context, order build.Order, upload io.Reader, tell func(build.Step) error) (build.Result, error)
}
