package sandbox

import "context"

// Killer is implemented by a Driver that can end many sandboxes at once. It is
// what the kill switch pulls, so nothing in it waits for one sandbox before it
// has turned to all.
type Killer interface {
	// KillAll ends every process of the sandboxes with these ids; nil is of all
	// that the driver has, also of those that no process has adopted. Each is
	// sent its end before the first is waited for, and KillAll returns when the
	// last has ended, or ctx has. A sandbox that is being made is not finished:
	// its Create fails. Ids that are not known are none. The sandboxes are dead
	// then, as if they had died by themselves: what is left of them stays until
	// Destroy.
	KillAll(ctx context.Context, ids []string) error
}
