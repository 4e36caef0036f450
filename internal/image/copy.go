package image

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/aurea-dev/aurea/internal/image/erofs"
)

// copy copies the files of the view, several at a time, each into its own
// place: the order in which they end does not matter.
func (v *view) copy(ctx context.Context, w *erofs.Writer, progress Progress) error {
	for _, f := range v.files {
		data, err := w.Reserve(f.size)
		if err != nil {
			return err
		}
		f.node.Data = data
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, done, told atomic.Int64
	var all sync.WaitGroup
	for range min(max(runtime.NumCPU(), 2), 8) {
		all.Go(func() {
			const often = 16 << 20
			buffer := make([]byte, 1<<20)
			for context.Cause(ctx) == nil {
				i := next.Add(1) - 1
				if i >= int64(len(v.files)) {
					return
				}
				f := v.files[i]
				if err := copyFile(f, w, buffer); err != nil {
					cancel(err)
					return
				}
				now := done.Add(f.size)
				if last := told.Load(); now-last >= often && told.CompareAndSwap(last, now) {
					w.Begin() // the disk writes while we read
					progress.tell(Step{Doing: "copy", Done: now, Total: v.total})
				}
			}
		})
	}
	all.Wait()
	progress.tell(Step{Doing: "copy", Done: done.Load(), Total: v.total})
	return context.Cause(ctx)
}
