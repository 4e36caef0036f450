package httpapi

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
)

// patience bounds how much of a body that is too large is read and dropped, so
// that a client which is still sending gets to read why it was refused.
const patience = 4 * MaxBodyBytes

// read returns the body, whatever its content type says: clients send JSON
// under all sorts of names. It is nil when there is none.
func (e *Exchange) read() ([]byte, error) {
	limit := http.NewResponseController(e.w)
	_ = limit.SetReadDeadline(time.Now().Add(readTimeout)) // where the connection can
	defer func() { _ = limit.SetReadDeadline(time.Time{}) }()
	if e.r.ContentLength > MaxBodyBytes {
		return nil, e.tooLarge()
	}
	body, err := io.ReadAll(io.LimitReader(e.r.Body, MaxBodyBytes+1))
	switch timeout := net.Error(nil); {
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil, problem.New(http.StatusRequestTimeout, "slow_body", "The body did not arrive in time; send it again.")
	case err != nil:
		return nil, problem.New(http.StatusBadRequest, "broken_body", "The body broke off before its end; send it again.")
	case len(body) > MaxBodyBytes:
		return nil, e.tooLarge()
	case strings.TrimSpace(string(body)) == "":
		return nil, nil
	}
	return body, nil
}

func (e *Exchange) tooLarge() error {
	if e.r.Header.Get("Expect") == "" { // else the client waits for our word before it sends
		_, _ = io.CopyN(io.Discard, e.r.Body, patience)
	}
	return fault.New(fault.TooLarge, "The body is larger than %d bytes, which is the most that is taken.", MaxBodyBytes)
}

// into reads the body into a struct; there must be one.
func (e *Exchange) into(v any) error {
	body, err := e.read()
	if err != nil {
		return err
	}
	if body == nil {
		return fault.New(fault.Invalid, "The body is empty; send a JSON object.").WithCode("no_body")
	}
	return bind(body, v)
}

// maybeInto reads the body into a struct if there is one.
func (e *Exchange) maybeInto(v any) error {
	body, err := e.read()
	if err != nil || body == nil {
		return err
	}
	return bind(body, v)
}
