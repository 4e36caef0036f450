//go:build !embed

package embedded

import (
	"fmt"
	"os"
	"path/filepath"
)

// Find returns the binaries that lie beside our own. Nothing is extracted, so
// that stateDir is not used.
func Find(string) (Binaries, error) {
	own, err := os.Executable()
	if err != nil {
		return Binaries{}, fmt.Errorf("find our own binary: %w", err)
	}
	if own, err = filepath.EvalSymlinks(own); err != nil {
		return Binaries{}, fmt.Errorf("find our own binary: %w", err)
	}
	return beside(filepath.Dir(own))
}
