package worker

import (
	"context"
	"io"

	"github.com/aurea-dev/aurea/internal/build"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
)

var _ dispatch.Builder = receiver{}

// Build builds an image here, where a builder is set up. It takes no slot: it
// makes no sandbox, and the engine that does the work is bounded by itself.
func (rc receiver) Build(ctx context.Context, order build.Order, upload io.Reader, tell func(build.Step) error) (build.Result, error) {
	b := rc.run.Builder
	if b == nil {
		return build.Result{}, fault.New(fault.Unavailable, "worker %s builds no images", rc.run.WorkerID).WithCode("no_builder")
	}
	ctx, cancel := rc.run.brake.Within(ctx)
	defer cancel()
	log := rc.run.log.With("dockerfile", order.Name, "tag", order.Tag, "uploaded", order.Uploaded)
	r, err := b.Build(ctx, order, upload, tell)
	if err != nil {
		log.Warn("an image was not built", "error", err)
		return build.Result{}, err
	}
	log.Info("an image was built", "image", r.Image, "digest", r.Digest)
	return r, nil
}
