package guest

import (
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest/wire"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// asFault turns what a guest answered into an error, or nil.
func asFault(o wire.Outcome) error {
	if o.Status == wire.StatusOK {
		return nil
	}
	meaning := meanings()[o.Status]
	err := fault.New(meaning.kind, "%s", o.Message)
	if meaning.code != "" {
		err = err.WithCode(meaning.code)
	}
	return err
}

// meaning is what an outcome is to a caller.
type meaning struct {
	kind fault.Kind
	code string // "" is the kind's
}

func meanings() map[wire.Status]meaning {
	return map[wire.Status]meaning{
		wire.StatusInvalid:    {kind: fault.Invalid},
		wire.StatusNotFound:   {kind: fault.NotFound},
		wire.StatusConflict:   {kind: fault.Conflict},
		wire.StatusDenied:     {kind: fault.Denied},
		wire.StatusExhausted:  {kind: fault.Exhausted},
		wire.StatusInternal:   {kind: fault.Internal},
		wire.StatusExists:     {fault.Conflict, sandbox.CodeExists},
		wire.StatusNotEmpty:   {fault.Conflict, sandbox.CodeNotEmpty},
		wire.StatusIsDir:      {fault.Conflict, sandbox.CodeIsDir},
		wire.StatusNotDir:     {fault.Conflict, sandbox.CodeNotDir},
		wire.StatusDiskFull:   {fault.Exhausted, sandbox.CodeDiskFull},
		wire.StatusNotFile:    {fault.Invalid, sandbox.CodeNotFile},
		wire.StatusPortClosed: {fault.Unavailable, sandbox.CodePortClosed},
	}
}
