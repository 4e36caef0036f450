package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
)

const jsonType = "application/json"

// checked is a message that knows its bounds.
type checked interface{ Check() error }

// leave is the body of the call of that name.
type leave struct {
	Session string `json:"session"`
}

// Check refuses what is out of bounds.
func (l leave) Check() error { return dispatch.CheckSession(l.Session) }

// nothing is the answer of calls that have none.
type nothing struct{}

// leases is the answer to a request for work.
type leases struct {
	Leases []lease `json:"leases"`
}

// lease is a dispatch.Lease whose payload crosses byte for byte.
type lease struct {
	dispatch.Lease
	Payload []byte `json:"payload"`
}

func wrap(ls []dispatch.Lease) leases {
	out := leases{Leases: make([]lease, 0, len(ls))}
	for _, l := range ls {
		out.Leases = append(out.Leases, lease{Lease: l, Payload: l.Payload})
	}
	return out
}

func (ls leases) unwrap() []dispatch.Lease {
	out := make([]dispatch.Lease, 0, len(ls.Leases))
	for _, l := range ls.Leases {
		l.Lease.Payload = l.Payload
		out = append(out, l.Lease)
	}
	return out
}

// encode writes JSON without escaping for browsers, so that what is a JSON
// value already changes as little as can be.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fault.New(fault.Invalid, "write the call as JSON: %w", err)
	}
	return buf.Bytes(), nil
}

func unmarshal(body []byte, into any) error {
	err := json.Unmarshal(body, into)
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		return fault.New(fault.Invalid, "the body is not JSON, at byte %d: %w", syntax.Offset, err).WithCode("malformed_json")
	case errors.As(err, &mismatch) && mismatch.Field != "":
		return fault.Field(mismatch.Field, "cannot be a %s", mismatch.Value)
	}
	return fault.New(fault.Invalid, "read the body: %w", err)
}

// readBody reads a whole body under a deadline of its own. With the last byte
// the server takes the deadline away, and goes on reading to notice a caller
// that hangs up during a long poll.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != jsonType {
		return nil, fault.Field("Content-Type", "must be %s", jsonType)
	}
	if r.ContentLength > dispatch.MaxBodyBytes {
		return nil, tooLarge()
	}
	// Where no deadline can be set, the server has its own.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(dispatch.ReportTimeout))
	body := bytes.NewBuffer(make([]byte, 0, max(r.ContentLength, 0)+bytes.MinRead))
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, dispatch.MaxBodyBytes))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge()
	case err != nil:
		return nil, fault.New(fault.Unavailable, "read the body: %w", err)
	}
	return body.Bytes(), nil
}

func tooLarge() *fault.Error {
	return fault.New(fault.TooLarge, "a call can have at most %d bytes; send less at a time", dispatch.MaxBodyBytes)
}

// readAnswer reads an answer, at most limit bytes of it.
func readAnswer(r io.Reader, limit int64, into any) error {
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return fault.New(fault.Unavailable, "read the answer: %w", err)
	}
	if int64(len(body)) > limit {
		return fault.New(fault.Unavailable, "the answer is longer than %d bytes", limit)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fault.New(fault.Unavailable, "the answer is not what a manager says: %w", err)
	}
	return nil
}
