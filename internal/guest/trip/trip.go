// Package trip is a system call that Linux does not have and our own sandboxes do:
// one that makes several.
//
// Where the kernel is another process, what a call costs is the way there and back.
// A guest makes a dozen of them to start a command and to put away what is left of
// it, and the command itself few more. It may have done in one trip what it would
// do in several. Nobody else may: a program that gave calls up by a filter could
// make them this way.
package trip

// Number is the call's. Its arguments are the address of the calls and how many
// there are. It returns what the last one does, or a Failure. Where there is no
// such call that is ENOSYS, or another error, and nothing was done. A program that
// cannot be started, which is a trip's last call, is an error by itself too.
const Number = 1999

// Most is how many calls a trip makes.
const Most = 32

// Call is a system call of a trip, as it lies in memory.
type Call struct {
	Number     uintptr // with what is said about it
	A, B, C, D uintptr // its arguments; any other is 0
}

// What can be said about a call, beside its number.
const (
	// Load: A is where its first argument lies, a number of 32 bits that an
	// earlier call may have written.
	Load = 1 << 32
	// Pass: the trip goes on if it fails.
	Pass = 1 << 33

	numbers = Load - 1
)

// Of is the number of a call without what is said about it.
func (c Call) Of() uintptr { return c.Number & numbers }

// Has reports whether something is said about a call.
func (c Call) Has(word uintptr) bool { return c.Number&word != 0 }

// Failure is what a trip returns that a call has ended: which, and why.
func Failure(call int, errno uintptr) uintptr {
	return failed | uintptr(call)<<16 | errno&0xffff
}

// failed is more than any call returns that a guest makes.
const failed = 1 << 40

// Failed reports which call has ended a trip, and why.
func Failed(returned uintptr) (call int, errno uintptr, yes bool) {
	if returned&failed == 0 {
		return 0, 0, false
	}
	return int(returned >> 16 & 0xffff), returned & 0xffff, true
}
