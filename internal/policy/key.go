package policy

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"time"
)

// Key is an API key as it is kept: its hash, never the key itself.
type Key struct {
	ID        string
	Kind      Kind
	Name      string
	Hash      [sha256.Size]byte
	CreatedAt time.Time
	RevokedAt time.Time // zero while it is good
}

// keyPrefix makes our keys recognisable to secret scanners and to people.
const keyPrefix = "aurea_"

// NewKey makes a key of 256 random bits. The secret is shown to its user once;
// only the hash is kept.
func NewKey(kind Kind, name string, now time.Time) (k Key, secret string) {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never fails: crypto/rand ends the process instead
	secret = keyPrefix + string(kind) + "_" + base64.RawURLEncoding.EncodeToString(bits[:])
	hash := HashKey(secret)
	return Key{ID: string(kind) + "-" + base64.RawURLEncoding.EncodeToString(hash[:6]), Kind: kind, Name: name, Hash: hash, CreatedAt: now}, secret
}

// HashKey returns the hash under which a secret is kept. Secrets carry 256
// random bits, so a plain hash is enough, and looking a key up by its hash
// leaks nothing through timing.
func HashKey(secret string) [sha256.Size]byte {
	return sha256.Sum256([]byte(strings.TrimSpace(secret)))
}

// Good reports whether the key may still be used.
func (k Key) Good() bool { return k.RevokedAt.IsZero() }

// Caller returns the caller that the key stands for.
func (k Key) Caller() Caller { return Caller{Kind: k.Kind, ID: k.ID} }
