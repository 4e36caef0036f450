package notary

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/aurea-dev/aurea/internal/audit"
)

// The files of a notary: the key that signs, and the last checkpoint that was
// signed.
const (
	keyFile  = "audit.key"
	lastFile = "audit.checkpoint"
)

// openKey reads the key, or makes one.
func (n *Notary) openKey() error {
	b, err := os.ReadFile(filepath.Join(n.Keys, keyFile))
	secret := strings.TrimSpace(string(b))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		var name [6]byte
		_, _ = rand.Read(name[:]) // never fails: crypto/rand ends the process instead
		if secret, _, err = note.GenerateKey(rand.Reader, "aurea.audit/"+hex.EncodeToString(name[:])); err == nil {
			err = write(filepath.Join(n.Keys, keyFile), secret+"\n")
		}
	case err == nil && secret == "":
		err = errors.New("it is empty")
	}
	if err == nil {
		n.signer, err = note.NewSigner(secret)
	}
	if err == nil {
		n.vkey, err = publicOf(n.signer.Name(), secret)
	}
	if err == nil {
		n.key, err = note.NewVerifier(n.vkey)
	}
	if err != nil {
		return fmt.Errorf("open the key of the audit, %s: %w", filepath.Join(n.Keys, keyFile), err)
	}
	return nil
}

// publicOf returns what checks the signatures of a secret: its last field is
// the seed, behind a byte that says that it is one of Ed25519.
func publicOf(name, secret string) (string, error) {
	_, last, _ := strings.Cut(strings.TrimPrefix(secret, "PRIVATE+KEY+"+name+"+"), "+") // which may have some itself
	seed, err := base64.StdEncoding.DecodeString(last)
	if err != nil || len(seed) != 1+ed25519.SeedSize {
		return "", errors.New("it is not one of Ed25519")
	}
	public, _ := ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey) // it is one
	return note.NewEd25519VerifierKey(name, public)
}

// readLast reads the last checkpoint that was signed. One that was changed
// keeps the manager from starting: it is what the log is held against.
func (n *Notary) readLast() error {
	b, err := os.ReadFile(filepath.Join(n.Dir, lastFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the last checkpoint of the audit: %w", err)
	}
	c, signed, err := audit.OpenCheckpoint(string(b), n.key)
	if err == nil && !signed {
		err = errors.New("another key signed it")
	}
	if err != nil {
		return fmt.Errorf("the last checkpoint of the audit, %s, was changed: %w", filepath.Join(n.Dir, lastFile), err)
	}
	n.last = c
	return nil
}

func (n *Notary) writeLast(text string) error { return write(filepath.Join(n.Dir, lastFile), text) }

// write writes a file of mode 0600, whole or not at all.
func write(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // of mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}
