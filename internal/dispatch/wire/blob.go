package wire

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
)

// stored bounds how long a manager may take to put a blob on disk after its
// last byte.
const stored = time.Minute

// putBlob is the manager's end: it hands the bytes on as they come. That they
// match their digest is the manager's to see.
func (d *Door) putBlob(w http.ResponseWriter, r *http.Request) {
	sha256, session := r.PathValue("sha256"), r.URL.Query().Get("session")
	err := dispatch.CheckBlob(sha256, r.ContentLength)
	if err == nil {
		err = dispatch.CheckSession(session)
	}
	if err == nil {
		body := &incoming{ctx: r.Context(), r: r.Body, ctl: http.NewResponseController(w)}
		interrupted := make(chan struct{})
		stop := context.AfterFunc(r.Context(), func() {
			defer close(interrupted)
			body.interrupt()
		})
		err = d.manager.PutBlob(r.Context(), session, sha256, r.ContentLength, body)
		if !stop() {
			<-interrupted // w must not be touched after this call
		}
	}
	if err != nil {
		d.refuse(w, r, err)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(dispatch.ReportTimeout))
	w.WriteHeader(http.StatusNoContent)
}

// incoming gives each read a deadline of its own, so that a large blob may
// take its time and a stuck one may not.
type incoming struct {
	ctx context.Context //nolint:containedctx // a reader's only way to hear of the end of its call
	r   io.Reader
	ctl *http.ResponseController
}

func (in *incoming) Read(p []byte) (int, error) {
	_ = in.ctl.SetReadDeadline(time.Now().Add(Dead))
	if in.ctx.Err() != nil { // after the deadline: interrupt may have come before it
		return 0, context.Cause(in.ctx)
	}
	n, err := in.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fault.New(fault.Unavailable, "receive the blob: %w", err)
	}
	return n, err
}

// interrupt wakes a read that waits for bytes.
func (in *incoming) interrupt() { _ = in.ctl.SetReadDeadline(time.Unix(1, 0)) }

// PutBlob sends bytes. It returns only when r is not read any more.
func (c *Client) PutBlob(ctx context.Context, session, sha256 string, size int64, r io.Reader) error {
	if err := dispatch.CheckBlob(sha256, size); err != nil {
		return err
	}
	if err := dispatch.CheckSession(session); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(Dead, func() { cancel(errStalled) })
	defer stall.Stop()
	body := &outgoing{r: r, left: size, moved: func(next time.Duration) { stall.Reset(next) }}
	err := c.sendBlob(ctx, session, sha256, size, body)
	if wrong := body.stop(); err != nil && wrong != nil {
		return wrong // the reason why the sending failed
	}
	return err
}

var errStalled = errors.New("the blob made no progress")

func (c *Client) sendBlob(ctx context.Context, session, sha256 string, size int64, body *outgoing) error {
	var content io.Reader = body
	if size == 0 {
		// HTTP takes a length of 0 for an unknown one unless there is no body.
		content = http.NoBody
		if err := body.empty(); err != nil {
			return err
		}
	}
	req, err := c.request(ctx, http.MethodPut, blobsPath+sha256, url.Values{"session": {session}}, content)
	if err != nil {
		return err
	}
	req.ContentLength = size
	if size > 0 {
		// The manager may have the blob: let it say so before the bytes go.
		req.Header.Set("Expect", "100-continue")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return away(ctx, "put a blob", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusNoContent {
		return readProblem(resp)
	}
	return nil
}

// outgoing is the body of a blob. The transport may go on reading a body after
// it gave its answer; the owner of r must not see that.
type outgoing struct {
	moved func(next time.Duration) // when more should have happened

	mu      sync.Mutex
	r       io.Reader
	left    int64
	stopped bool
	wrong   error // r had other than the promised number of bytes, or failed
}

func (o *outgoing) Read(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return 0, io.ErrClosedPipe
	}
	o.moved(Dead)
	n, err := o.r.Read(p)
	o.left -= int64(n)
	switch {
	case o.left == 0:
		o.moved(stored)
	case o.left < 0:
		o.wrong = fault.Field("size", "the blob has more bytes than was said")
	case errors.Is(err, io.EOF) && o.left > 0:
		o.wrong = fault.Field("size", "the blob ended %d bytes early", o.left)
	}
	if o.wrong == nil && err != nil && !errors.Is(err, io.EOF) {
		o.wrong = fault.New(fault.Internal, "read the blob: %w", err)
	}
	if o.wrong != nil {
		return 0, o.wrong
	}
	return n, err
}

// empty checks that there is nothing to send.
func (o *outgoing) empty() error {
	var p [1]byte
	n, err := io.ReadFull(o, p[:])
	if n == 0 && errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// stop waits for a read that is under way and lets no other begin.
func (o *outgoing) stop() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	return o.wrong
}
