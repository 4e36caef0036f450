package machinesapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
	"github.com/aurea-dev/aurea/internal/store"
)

// statusOf is the status and the text of an error, as this shape has them. What
// went wrong inside is not told.
func statusOf(err error) (int, string) {
	if p := (*problem.Problem)(nil); errors.As(err, &p) {
		return p.Status, p.Detail
	}
	f := (*fault.Error)(nil)
	if !errors.As(err, &f) {
		return http.StatusInternalServerError, "internal: something went wrong here; the log says what"
	}
	text := asAsked(f).Error()
	switch f.Kind {
	case fault.Invalid:
		return http.StatusBadRequest, "invalid_argument: " + text
	case fault.Conflict:
		return conflict(f.Code, text)
	case fault.Exhausted:
		return http.StatusServiceUnavailable, "resource_exhausted: " + text
	case fault.Unavailable:
		if f.Code == "deadline_exceeded" {
			return http.StatusRequestTimeout, "deadline_exceeded: " + text
		}
		return http.StatusServiceUnavailable, "unavailable: " + text
	case fault.Internal:
		return http.StatusInternalServerError, "internal: something went wrong here; the log says what"
	case fault.NotFound, fault.Unauthenticated, fault.Denied, fault.TooLarge, fault.Gone:
	}
	return f.Kind.Status(), text
}

// asAsked names a limit as a configuration asks for it. Others name it as they
// hold it, and some count in their own unit, which is said along.
func asAsked(f *fault.Error) *fault.Error {
	asked := *f
	switch f.Field {
	case "cpu_limit":
		asked.Field = "config.guest.cpus"
	case "limits.milli_cpu":
		asked.Field, asked.Message = "config.guest.cpus", f.Message+" (counted in thousandths of a processor)"
	case "memory_limit":
		asked.Field = "config.guest.memory_mb"
	case "limits.memory_bytes":
		asked.Field, asked.Message = "config.guest.memory_mb", f.Message+" (counted in bytes)"
	}
	return &asked
}

// conflict tells states that forbid something from things that exist.
func conflict(code, text string) (int, string) {
	switch code {
	case "wrong_state", "illegal_move", "paused":
		return http.StatusPreconditionFailed, "failed_precondition: " + text
	case store.CodeNameTaken, "app_exists":
		return http.StatusConflict, "already_exists: " + text
	}
	return http.StatusConflict, "aborted: " + text
}

func retryAfter(err error) time.Duration {
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		return f.RetryAfter
	}
	return 0
}
