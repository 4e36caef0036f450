package governor

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/manifest"
)

// KeyFile is a Keyring whose signing key lies in a file that only its owner
// reads. Keys that do not sign any more are not kept: their public halves are in
// the database, and that is all that checking needs.
type KeyFile struct {
	path string

	mu     sync.Mutex
	signer *manifest.Signer
}

// OpenKeyFile reads the key, or makes one. With secrets papers are signed in the
// older form: the first signs, the others are still good. With the path "" the
// key is kept nowhere, for tests.
func OpenKeyFile(path string, secrets []manifest.Secret) (*KeyFile, error) {
	f := &KeyFile{path: path}
	key, err := f.read()
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		key, err = f.write()
	}
	if err != nil {
		return nil, err
	}
	f.signer = &manifest.Signer{Key: key, Secrets: secrets}
	return f, nil
}

// Signer implements Keyring.
func (f *KeyFile) Signer() *manifest.Signer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.signer
}

// Rotate implements Keyring.
func (f *KeyFile) Rotate() (manifest.Key, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key, err := f.write()
	if err != nil {
		return key, err
	}
	f.signer = &manifest.Signer{Key: key, Secrets: f.signer.Secrets}
	return key, nil
}

func (f *KeyFile) read() (manifest.Key, error) {
	info, err := os.Stat(f.path)
	if err != nil {
		return manifest.Key{}, fmt.Errorf("read the key of manifests: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return manifest.Key{}, fault.New(fault.Invalid, "others can read %s, so it signs nothing; run chmod 600 on it, or remove it to get a new one", f.path).WithCode("bad_setting")
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		return manifest.Key{}, fmt.Errorf("read the key of manifests: %w", err)
	}
	seed, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return manifest.Key{}, fmt.Errorf("read the key of manifests in %s: it is not hexadecimal", f.path)
	}
	return manifest.NewKey(seed)
}

// write makes a key and puts it in place of the one before, whole or not at all.
func (f *KeyFile) write() (manifest.Key, error) {
	seed := make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(seed) // never fails: crypto/rand ends the process instead
	if f.path == "" {
		return manifest.NewKey(seed)
	}
	tmp, err := os.CreateTemp(filepath.Dir(f.path), ".new-*") // of mode 0600
	if err != nil {
		return manifest.Key{}, fmt.Errorf("write the key of manifests: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.WriteString(hex.EncodeToString(seed) + "\n")
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), f.path)
	}
	if err != nil {
		return manifest.Key{}, fmt.Errorf("write the key of manifests: %w", err)
	}
	return manifest.NewKey(seed)
}

// ReadSecrets reads the secrets of the older form, one in each line.
func ReadSecrets(path string) ([]manifest.Secret, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the secrets of manifests: %w", err)
	}
	var list []manifest.Secret
	for _, line := range strings.Split(strings.TrimRight(string(text), "\r\n"), "\n") {
		s, err := manifest.NewSecret(strings.TrimRight(line, "\r"))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		list = append(list, s)
	}
	return list, nil
}
