package notary

import (
	"crypto/rand"
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

// The files of a notary: the key that signs, what checks its signatures, and
// the last checkpoint that was signed.
const (
	keyFile  = "audit.key"
	pubFile  = "audit.pub"
	lastFile = "audit.checkpoint"
)

// openKey reads the key, or makes one.
func (n *Notary) openKey() error {
	secret, err := n.read(keyFile)
	if err != nil {
		return err
	}
	if secret == "" {
		if secret, err = n.makeKey(); err != nil {
			return err
		}
	}
	if n.signer, err = note.NewSigner(secret); err != nil {
		return fmt.Errorf("read the key of the audit in %s: %w", n.Dir, err)
	}
	if n.vkey, err = n.read(pubFile); err != nil {
		return err
	}
	if n.key, err = note.NewVerifier(n.vkey); err != nil {
		return fmt.Errorf("read the public key of the audit in %s: %w", n.Dir, err)
	}
	if n.key.Name() != n.signer.Name() || n.key.KeyHash() != n.signer.KeyHash() {
		return fmt.Errorf("the files %s and %s in %s are not of one key", keyFile, pubFile, n.Dir)
	}
	return nil
}

func (n *Notary) makeKey() (string, error) {
	var name [6]byte
	_, _ = rand.Read(name[:]) // never fails: crypto/rand ends the process instead
	secret, public, err := note.GenerateKey(rand.Reader, "aurea.audit/"+hex.EncodeToString(name[:]))
	if err != nil {
		return "", fmt.Errorf("make the key of the audit: %w", err)
	}
	// The secret last: with it the pair is whole.
	for _, f := range []struct{ name, text string }{{pubFile, public}, {keyFile, secret}} {
		if err := n.write(f.name, f.text+"\n"); err != nil {
			return "", err
		}
	}
	return secret, nil
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

func (n *Notary) writeLast(text string) error { return n.write(lastFile, text) }

// read returns the first line of a file, or "" where there is none.
func (n *Notary) read(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(n.Dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the key of the audit: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// write writes a file of mode 0600, whole or not at all.
func (n *Notary) write(name, text string) error {
	f, err := os.CreateTemp(n.Dir, ".new-*") // of mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
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
		err = os.Rename(f.Name(), filepath.Join(n.Dir, name))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
