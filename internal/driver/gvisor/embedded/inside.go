//go:build embed

package embedded

import (
	_ "embed"
	"path/filepath"
)

//go:embed aurea-sentry.zst
var sentry []byte

//go:embed aurea-sentry.sha256
var sentryDigest string

//go:embed aurea-guest.zst
var guest []byte

//go:embed aurea-guest.sha256
var guestDigest string

// Find extracts the binaries to stateDir/bin, if they are not there, and
// returns their paths.
func Find(stateDir string) (Binaries, error) {
	dir := filepath.Join(stateDir, "bin")
	var b Binaries
	var err error
	if b.Sentry, err = extract(dir, SentryName, sentry, sentryDigest); err != nil {
		return Binaries{}, err
	}
	if b.Guest, err = extract(dir, GuestName, guest, guestDigest); err != nil {
		return Binaries{}, err
	}
	return b, nil
}
