package guard

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
)

// MaxBodyBytes bounds the body of a request.
const MaxBodyBytes = 8 << 20

const (
	// bodyTimeout is how long a body may take to arrive.
	bodyTimeout = 30 * time.Second
	// patience bounds how much of a body that is too large is read and
	// dropped, so that a client which is still sending gets to read why it was
	// refused.
	patience = 4 * MaxBodyBytes
)

// ReadBody returns the body of a request, nil when there is none but space. It
// is bounded in size and in time.
func ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // where the connection can
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	if r.ContentLength > MaxBodyBytes {
		return nil, tooLarge(r)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxBodyBytes+1))
	switch timeout := net.Error(nil); {
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil, problem.New(http.StatusRequestTimeout, "slow_body", "The body did not arrive in time; send it again.")
	case err != nil:
		return nil, problem.New(http.StatusBadRequest, "broken_body", "The body broke off before its end; send it again.")
	case len(body) > MaxBodyBytes:
		return nil, tooLarge(r)
	case len(bytes.TrimSpace(body)) == 0:
		return nil, nil
	}
	return body, nil
}

func tooLarge(r *http.Request) error {
	if r.Header.Get("Expect") == "" { // else the client waits for our word before it sends
		_, _ = io.CopyN(io.Discard, r.Body, patience)
	}
	return fault.New(fault.TooLarge, "The body is larger than %d bytes, which is the most that is taken.", MaxBodyBytes)
}
