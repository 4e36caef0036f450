package httpapi_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// deaf is a sandbox whose ports cannot be reached.
type deaf struct {
	httpapi.Keeper
	why error
}

func (k deaf) DialSandbox(context.Context, string, uint16) (net.Conn, error) { return nil, k.why }

// TestPortThatNobodyListensAt is 502, and a worker that is away 503: one is the
// sandbox's affair and the other ours.
func TestPortThatNobodyListensAt(t *testing.T) {
	t.Parallel()
	for status, why := range map[int]*fault.Error{
		502: fault.New(fault.Unavailable, "nobody listens at port 9").WithCode(sandbox.CodePortClosed),
		503: fault.New(fault.Unavailable, "the worker is away").WithCode("worker_away"),
	} {
		s := serveKeeper(t, deaf{why: why})
		resp, err := s.Client().Get(s.URL + "/api/v1/sandboxes/b1/ports/9/")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != status || !strings.Contains(string(body), why.Code) {
			t.Errorf("%s: %d, %s", why.Code, resp.StatusCode, body)
		}
	}
}
