package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
	"github.com/aurea-dev/aurea/internal/fault"
)

// The exit codes.
const (
	ExitOK          = 0
	ExitFailed      = 1   // anything that has no code of its own
	ExitInvalid     = 2   // the command line, a setting or a document is wrong
	ExitNotFound    = 3   // what was named does not exist
	ExitConflict    = 4   // its state forbids this
	ExitDenied      = 5   // no key, or a key that may not do this
	ExitUnavailable = 6   // the server, or a part of it, is away
	ExitNotComplete = 7   // with --wait: the job ended, and not COMPLETED
	ExitInterrupted = 130 // by a signal
)

func exitHelp() string {
	return `Exit codes:
  0    done
  1    failed
  2    the command line, a setting or a document is wrong
  3    not found
  4    conflict: the state of the thing forbids it
  5    not allowed: no key, or one that may not do this
  6    the server, or a part of it, is away
  7    with --wait: the job ended without being COMPLETED
  130  interrupted`
}

// usageError is a command line that cannot be understood.
type usageError struct{ message, hint string }

func (u *usageError) Error() string { return u.message }

func usage(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...), fmt.Sprintf("see `%s --help`", cmd.CommandPath())}
}

// notCompleteError is a job that ended otherwise than it was hoped.
type notCompleteError struct{ job client.Job }

func (n *notCompleteError) Error() string {
	why := string(n.job.Status)
	if n.job.Outcome != nil {
		why += ", " + *n.job.Outcome
	}
	return fmt.Sprintf("job %s ended %s", n.job.ID, why)
}

// quietError has said what there is to say.
type quietError struct{ error }

// Unwrap returns the error.
func (q quietError) Unwrap() error { return q.error }

// ExitCode returns the code for an error.
func ExitCode(err error) int {
	var (
		u  *usageError
		n  *notCompleteError
		p  *client.Problem
		ur *client.Unreachable
		f  *fault.Error
		ec interface{ ExitCode() int }
	)
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &u):
		return ExitInvalid
	case errors.As(err, &n):
		return ExitNotComplete
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.As(err, &p):
		return exitOfStatus(p.Status)
	case errors.As(err, &ur):
		return ExitUnavailable
	case errors.As(err, &ec):
		return ec.ExitCode()
	case errors.As(err, &f):
		return exitOfKind(f.Kind)
	}
	return ExitFailed
}

func exitOfStatus(status int) int {
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		return ExitInvalid
	case http.StatusNotFound, http.StatusGone:
		return ExitNotFound
	case http.StatusConflict:
		return ExitConflict
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMisdirectedRequest:
		return ExitDenied
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return ExitUnavailable
	}
	return ExitFailed
}

func exitOfKind(k fault.Kind) int {
	switch k {
	case fault.Invalid, fault.TooLarge:
		return ExitInvalid
	case fault.NotFound, fault.Gone:
		return ExitNotFound
	case fault.Conflict:
		return ExitConflict
	case fault.Unauthenticated, fault.Denied:
		return ExitDenied
	case fault.Exhausted, fault.Unavailable:
		return ExitUnavailable
	case fault.Internal:
		return ExitFailed
	}
	return ExitFailed
}

// hintOf says what to do about an error, where that is known.
func hintOf(err error) string {
	var (
		u  *usageError
		p  *client.Problem
		ur *client.Unreachable
	)
	switch {
	case errors.As(err, &u):
		return u.hint
	case errors.As(err, &ur):
		return "start it with `aurea up`, or name another with --server"
	case errors.As(err, &p) && p.Hint != "":
		return p.Hint
	case errors.As(err, &p) && p.Status == http.StatusUnauthorized:
		return "set AUREA_KEY, or AUREA_KEY_FILE to the file that holds a key"
	case errors.As(err, &p) && p.Status == http.StatusForbidden && !ofTheLaw(p.Code):
		return "use a key that may do this"
	}
	return ""
}

// ofTheLaw reports whether a code is that of a decision about the fleet, which is
// the same whoever asks.
func ofTheLaw(code string) bool {
	return strings.HasPrefix(code, "deny_") || strings.HasPrefix(code, "reject_")
}

// printError says what went wrong, and what to do about it.
func (inv *invocation) printError(err error) {
	var quiet quietError
	if errors.As(err, &quiet) {
		return
	}
	hint := hintOf(err)
	if inv.json {
		code := fault.CodeOf(err)
		var p *client.Problem
		if errors.As(err, &p) {
			code = p.Code
		}
		line, _ := json.Marshal(struct {
			Error string `json:"error"`
			Code  string `json:"code,omitempty"`
			Hint  string `json:"hint,omitempty"`
			Exit  int    `json:"exit"`
		}{err.Error(), code, hint, ExitCode(err)})
		_, _ = fmt.Fprintf(inv.Err, "%s\n", line)
		return
	}
	_, _ = fmt.Fprintf(inv.Err, "aurea: %s\n", plain(strings.TrimSpace(err.Error())))
	var p *client.Problem
	if errors.As(err, &p) && len(p.Errors) > 1 {
		for _, f := range p.Errors {
			_, _ = fmt.Fprintf(inv.Err, "  %s: %s\n", plain(f.Location), plain(f.Message))
		}
	}
	if hint != "" {
		_, _ = fmt.Fprintf(inv.Err, "hint: %s\n", plain(hint))
	}
}

// noArgs and exactly are cobra's checks with our exit code.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasAvailableSubCommands() {
		said := fmt.Sprintf("unknown command %q", args[0])
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			said += fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
		}
		return usage(cmd, "%s", said)
	}
	return usage(cmd, "unexpected argument %q", args[0])
}

// atLeast demands one word or more, which are taken together.
func atLeast(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if strings.TrimSpace(strings.Join(args, " ")) == "" {
			return usage(cmd, "%s is missing", what)
		}
		return nil
	}
}

func exactly(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage(cmd, "name one %s", what)
		}
		return nil
	}
}

func atLeastOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage(cmd, "name at least one %s", what)
		}
		return nil
	}
}
