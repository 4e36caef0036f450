package sandbox

import "fmt"

// Verdict is how an exec ended, in one word. It is a result, never an error.
type Verdict string

// The verdicts.
const (
	OK      Verdict = "ok"      // exit code 0
	Failed  Verdict = "failed"  // another exit code
	Signal  Verdict = "signal"  // ended by a signal that was not ours
	Timeout Verdict = "timeout" // ran out of its time and was killed by us
	OOM     Verdict = "oom"     // the sandbox ran out of memory
	Limit   Verdict = "limit"   // over another limit; the exec says which
	Killed  Verdict = "killed"  // stopped on somebody's request; the exec says whose
	Lost    Verdict = "lost"    // the end was not seen
)

// Valid reports whether v is a verdict at all.
func (v Verdict) Valid() bool {
	switch v {
	case OK, Failed, Signal, Timeout, OOM, Limit, Killed, Lost:
		return true
	}
	return false
}

// verdict is what an exit says for itself, when nobody decided otherwise.
func (x Exit) verdict() (v Verdict, cause string) {
	switch {
	case x.OOM:
		return OOM, "the sandbox ran out of memory"
	case x.Lost:
		return Lost, "the end was not seen"
	case x.Signal != 0:
		return Signal, fmt.Sprintf("signal %d", x.Signal)
	case x.Code == 0:
		return OK, ""
	default:
		return Failed, ""
	}
}
