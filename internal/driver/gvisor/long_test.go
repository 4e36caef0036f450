package gvisor_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// A socket's path has room for 108 bytes, which must not be the end of a
// deeply nested state folder.
func TestLongStateDir(t *testing.T) {
	t.Parallel()
	d := open(t, filepath.Join(stateDir(t), strings.Repeat("long/", 40)))
	t.Cleanup(func() { d.Close() })
	if out, _, exit := sh(t, box(t, d), "echo hello"); out != "hello\n" || exit.Code != 0 {
		t.Errorf("%q %+v", out, exit)
	}
}
