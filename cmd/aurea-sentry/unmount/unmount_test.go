package unmount

import "testing"

// TestOtherCallsGoOn fails by ending the test's process.
func TestOtherCallsGoOn(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"x"}, {"x", "boot", "--sync-fd=3", "/proc"}, {"x", "umount", "--sync-fd=4", "/proc"}, {"x", "umount", "--sync-fd=3"}} {
		run(args)
	}
}
