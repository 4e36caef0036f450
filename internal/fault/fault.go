// Package fault is the small vocabulary of errors that cross a boundary.
//
// A fault says what kind of thing went wrong, which field or subject it
// concerns, and what to do about it. Each kind is one HTTP status everywhere,
// and one exit code. Outcomes of work (a failing script, a
// timeout, an out-of-memory kill) are results, never faults.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Kind is the closed set of reasons for which a request can fail.
type Kind int

// The kinds. The zero Kind is Internal, so that an unlabelled error is never
// mistaken for the caller's mistake.
const (
	Internal        Kind = iota // our bug or a broken machine; details stay in the log
	Invalid                     // the request is wrong: a field, a type, a size
	NotFound                    // the thing named does not exist for this caller
	Conflict                    // the thing exists but its state forbids this
	Unauthenticated             // no caller could be established
	Denied                      // the caller is known and may not do this
	TooLarge                    // over a size bound
	Exhausted                   // over a rate or quota; try again later
	Unavailable                 // a part that is needed is away; try again later
	Gone                        // the thing was here and was removed for good
)

// String returns the stable, lower-case name of the kind.
func (k Kind) String() string {
	switch k {
	case Internal:
		return "internal"
	case Invalid:
		return "invalid"
	case NotFound:
		return "not_found"
	case Conflict:
		return "conflict"
	case Unauthenticated:
		return "unauthenticated"
	case Denied:
		return "denied"
	case TooLarge:
		return "too_large"
	case Exhausted:
		return "exhausted"
	case Unavailable:
		return "unavailable"
	case Gone:
		return "gone"
	}
	return fmt.Sprintf("kind(%d)", int(k))
}

// Kinds lists every kind, for tables that must cover them all.
func Kinds() []Kind {
	return []Kind{Internal, Invalid, NotFound, Conflict, Unauthenticated, Denied, TooLarge, Exhausted, Unavailable, Gone}
}

// Status returns the HTTP status that stands for the kind, the same at every
// door. The numbers are written out so that this package links no HTTP.
func (k Kind) Status() int {
	switch k {
	case Invalid:
		return 422
	case NotFound:
		return 404
	case Conflict:
		return 409
	case Unauthenticated:
		return 401
	case Denied:
		return 403
	case TooLarge:
		return 413
	case Exhausted:
		return 429
	case Unavailable:
		return 503
	case Gone:
		return 410
	case Internal:
		return 500
	}
	return 500
}

// Error is a fault. Message is shown to users: it says what was wrong and what
// to do about it. Code is stable and machine-readable; it defaults to the
// kind's name. Field names the offending input as a path ("tasks[2].role").
type Error struct {
	Kind    Kind
	Code    string
	Field   string
	Message string
	// RetryAfter says when to come again, where that is known.
	RetryAfter time.Duration
	cause      error
}

// New returns a fault of the given kind with a formatted message. A %w verb
// keeps the cause.
func New(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Code: kind.String(), Message: err.Error(), cause: errors.Unwrap(err)}
}

// Field returns an Invalid fault about one input field.
func Field(field, format string, args ...any) *Error {
	e := New(Invalid, format, args...)
	e.Field = field
	return e
}

// WithCode returns the fault with a stable code of its own.
func (e *Error) WithCode(code string) *Error {
	c := *e
	c.Code = code
	return &c
}

// Retry returns the fault with a time after which to come again.
func (e *Error) Retry(after time.Duration) *Error {
	c := *e
	c.RetryAfter = after
	return &c
}

// Error returns the message, led by the field where there is one.
func (e *Error) Error() string {
	if e.Field != "" {
		return e.Field + ": " + e.Message
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// KindOf returns the kind of the outermost fault in err's chain, or Internal.
func KindOf(err error) Kind {
	var f *Error
	if errors.As(err, &f) {
		return f.Kind
	}
	return Internal
}

// Is reports whether err is a fault of the given kind.
func Is(err error, kind Kind) bool { return err != nil && KindOf(err) == kind }

// CodeOf returns the stable code of the outermost fault in err's chain, or
// "internal".
func CodeOf(err error) string {
	var f *Error
	if errors.As(err, &f) {
		return f.Code
	}
	return Internal.String()
}
