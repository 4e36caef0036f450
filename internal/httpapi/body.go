package httpapi

import (
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
)

// read returns the body, whatever its content type says: clients send JSON
// under all sorts of names. It is nil when there is none.
func (e *Exchange) read() ([]byte, error) { return guard.ReadBody(e.w, e.r) }

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
