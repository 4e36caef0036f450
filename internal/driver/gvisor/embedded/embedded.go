// Package embedded finds the two binaries that the gvisor driver needs. In a
// release they are inside our own binary, compressed (build tag "embed"; the
// pack command beside this package prepares them), and are extracted once; in
// development they are the files beside it.
package embedded

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// The names of the binaries.
const (
	SentryName = "aurea-sentry"
	GuestName  = "aurea-guest"
)

// Binaries are the paths of the two.
type Binaries struct{ Sentry, Guest string }

// beside returns the binaries in a folder.
func beside(dir string) (Binaries, error) {
	b := Binaries{Sentry: filepath.Join(dir, SentryName), Guest: filepath.Join(dir, GuestName)}
	for _, path := range []string{b.Sentry, b.Guest} {
		if _, err := os.Stat(path); err != nil {
			return Binaries{}, fmt.Errorf("find the sandbox binaries (build them with make build): %w", err)
		}
	}
	return b, nil
}

// extract writes a compressed binary to dir/DIGEST/name, unless it is there
// with the right content, and returns its path. digest is that of the content,
// in hexadecimal.
func extract(dir, name string, compressed []byte, digest string) (string, error) {
	digest = strings.TrimSpace(digest)
	if len(digest) != 2*sha256.Size {
		return "", fmt.Errorf("the digest of %s is not one", name)
	}
	path := filepath.Join(dir, digest, name)
	found, err := fileDigest(path)
	switch {
	case err == nil && found == digest:
		return path, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("check %s: %w", name, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("make the folder of %s: %w", name, err)
	}
	// Aside, then renamed: another worker may start at the same moment, and an
	// older file may be running.
	aside, err := os.CreateTemp(filepath.Dir(path), "."+name)
	if err != nil {
		return "", fmt.Errorf("extract %s: %w", name, err)
	}
	defer func() { _ = os.Remove(aside.Name()) }()
	got, err := decompress(aside, compressed)
	if closeErr := aside.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return "", fmt.Errorf("extract %s: %w", name, err)
	}
	if got != digest {
		return "", fmt.Errorf("extract %s: its digest is %s, not %s", name, got, digest)
	}
	if err := os.Rename(aside.Name(), path); err != nil {
		return "", fmt.Errorf("extract %s: %w", name, err)
	}
	return path, nil
}

// decompress writes the content to f, which becomes executable and is safe on
// disk, and returns its digest.
func decompress(f *os.File, compressed []byte) (string, error) {
	r, err := zstd.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return "", err
	}
	defer r.Close()
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, h), r); err != nil {
		return "", err
	}
	if err := f.Chmod(0o755); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), f.Sync()
}

func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
