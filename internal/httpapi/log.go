package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// maxLogPage bounds what one answer holds of a log that is not followed.
const maxLogPage = 4 << 20

type logInput struct {
	JobPath
	Stream string `query:"stream" enum:"stdout,stderr" default:"stdout" doc:"Which stream."`
	Offset int64  `query:"offset" minimum:"0" doc:"How many bytes to leave out."`
	Follow bool   `query:"follow" doc:"Go on until the job has ended."`
}

func (in *logInput) stream() sandbox.Stream {
	if in.Stream == "stderr" {
		return sandbox.Stderr
	}
	return sandbox.Stdout
}

func (a *API) registerLogs() {
	register(a, route{
		method: http.MethodGet, path: "/jobs/{id}/logs", action: policy.Read, id: "getLogs", tag: "evidence", answers: []string{"text/plain"},
		summary: "Read the output of a job",
		detail:  "The bytes as they were written by the newest try. Without follow it answers what there is, at most 4 MiB: X-Next-Offset says where to go on, X-Log-Ended whether anything more can come. With follow it goes on until the job has ended; when the job is tried again, the new try's output follows.",
	}, a.logs)
}

func (a *API) logs(ctx context.Context, in *logInput) (*huma.StreamResponse, error) {
	arrived := a.cfg.Manager.LogsArrived()
	l, err := a.cfg.Manager.Logs(ctx, in.ID, in.stream(), in.Offset)
	if err != nil {
		return nil, err
	}
	h := in.w.Header()
	if in.Follow && in.r.Method != http.MethodHead {
		leave, err := a.streams.enter(ctx)
		if err != nil {
			return nil, err
		}
		return &huma.StreamResponse{Body: func(huma.Context) {
			defer leave()
			logHeaders(h)
			if err := a.followLog(ctx, in, l, arrived); err != nil && ctx.Err() == nil {
				guard.NoteError(ctx, err)
			}
		}}, nil
	}
	data := l.Data
	for len(l.Data) > 0 && !l.Ended && len(data) < maxLogPage {
		next, err := a.cfg.Manager.Logs(ctx, in.ID, in.stream(), l.Next)
		if err != nil {
			return nil, err
		}
		if next.Attempt != l.Attempt {
			break
		}
		data, l = append(data, next.Data...), next
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		logHeaders(h)
		h.Set("X-Next-Offset", strconv.FormatInt(l.Next, 10))
		h.Set("X-Log-Ended", strconv.FormatBool(l.Ended))
		out := newSlowWriter(in.w)
		defer out.done()
		_, _ = out.Write(data) // a client that has gone needs no answer
	}}, nil
}

func logHeaders(h http.Header) {
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Accel-Buffering", "no")
}

// followLog sends output as it arrives. It wakes for output, and for events,
// since the end of a job is one.
func (a *API) followLog(ctx context.Context, in *logInput, l job.Log, arrived <-chan struct{}) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errStreamEnds)
	events := a.cfg.Manager.WatchEvents(ctx)
	out := newSlowWriter(in.w)
	defer out.done()
	for {
		if _, err := out.Write(l.Data); err != nil {
			return err
		}
		if err := out.flush(); err != nil || l.Ended {
			return err
		}
		if len(l.Data) == 0 {
			select {
			case <-arrived:
			case _, more := <-events:
				if !more {
					return nil
				}
			case <-a.endings:
				return nil
			case <-ctx.Done():
				return nil
			}
		}
		arrived = a.cfg.Manager.LogsArrived()
		err := a.streams.read(ctx, func() error {
			next, err := a.cfg.Manager.Logs(ctx, in.ID, in.stream(), l.Next)
			if err == nil && next.Attempt != l.Attempt { // another try: from its beginning
				next, err = a.cfg.Manager.Logs(ctx, in.ID, in.stream(), 0)
			}
			l = next
			return err
		})
		if err != nil {
			return err
		}
	}
}
