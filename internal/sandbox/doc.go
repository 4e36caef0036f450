// Package sandbox holds the noun and the contract: what a sandbox is, what a
// driver must do to make one, and the concrete Sandbox that keeps everything
// that is the same for all drivers: state, output spools with caps, deadlines,
// verdicts, and what was really enforced.
//
// It knows no driver, no manager and no store. The worker is its caller.
package sandbox
