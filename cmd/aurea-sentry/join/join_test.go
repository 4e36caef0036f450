package join

import (
	"slices"
	"testing"
)

func TestDescriptorsAreTakenOut(t *testing.T) {
	t.Parallel()
	fds, rest, ok := split([]string{"boot", Flag + "7", "--root=x", Flag + "12", "id"})
	if !ok || !slices.Equal(fds, []int{7, 12}) || !slices.Equal(rest, []string{"boot", "--root=x", "id"}) {
		t.Errorf("descriptors %v, arguments %q, %v", fds, rest, ok)
	}
	for _, bad := range []string{"", "x", "2", "-1"} {
		if _, _, ok := split([]string{Flag + bad}); ok {
			t.Errorf("%q was taken for a descriptor", bad)
		}
	}
}

// TestOtherCallsGoOn fails by ending the test's process.
func TestOtherCallsGoOn(t *testing.T) {
	t.Parallel()
	run(nil)
	run([]string{"boot", "--root=x"})
}
