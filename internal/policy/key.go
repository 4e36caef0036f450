package policy

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Key is an API key as it is kept: its hash, never the key itself.
type Key struct {
	ID        string
	Kind      Kind
	Name      string
	Hash      [sha256.Size]byte
	CreatedAt time.Time
	CreatedBy string    // the caller who made it; "" is the manager itself
	ExpiresAt time.Time // zero is never
	RevokedAt time.Time // zero while it is good
	// UsedAt is about when it was last used; zero is never.
	UsedAt time.Time
	Scope  Scope
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

// Good reports whether the key may be used at a time.
func (k *Key) Good(now time.Time) bool {
	return k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt))
}

// Caller returns the caller that the key stands for.
func (k *Key) Caller() Caller {
	c := Caller{Kind: k.Kind, ID: k.ID, Key: k.ID}
	if !k.Scope.Empty() {
		c.Scope = &k.Scope
		c.ID = cmp.Or(k.Scope.Owner, k.ID)
	}
	return c
}

// KeyRequest is what a new key is asked to be.
type KeyRequest struct {
	Kind      Kind
	Name      string
	ExpiresAt time.Time // zero is never
	Scope     Scope
}

// The bounds of names.
const (
	maxName  = 100
	maxOwner = 64
)

// Check refuses a request that no key can be made of.
func (r *KeyRequest) Check(now time.Time) error {
	switch {
	case r.Kind == Sandbox:
		return fault.Field("kind", "tokens of sandboxes are made by POST /sandboxes/{sandbox}/token")
	case !slices.Contains(Kinds(), r.Kind):
		return fault.Field("kind", "%q is not a kind of key; there are admin, director, operator, auditor, viewer, bridge and worker", clip(string(r.Kind)))
	case len(r.Name) > maxName || strings.ContainsFunc(r.Name, unicode.IsControl) || !utf8.ValidString(r.Name):
		return fault.Field("name", "must be at most %d characters, none of them control characters", maxName)
	case !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(now):
		return fault.Field("expires_at", "is over")
	case r.Scope.Owner != "" && !plain(r.Scope.Owner):
		return fault.Field("owner", "must be at most %d letters, digits, dots, dashes and underscores", maxOwner)
	case r.Scope.Owner == System().ID:
		return fault.Field("owner", "%q is the manager itself", r.Scope.Owner)
	case r.Scope.Project < 0:
		return fault.Field("project_id", "must not be negative")
	}
	for i, a := range r.Scope.Actions {
		switch {
		case !(&Scope{Owner: r.Scope.Owner, Project: r.Scope.Project}).allows(a):
			return fault.Field(fmt.Sprintf("actions[%d]", i), "a key that acts for one owner, or in one project, cannot %q", clip(string(a)))
		case !slices.Contains(allowed(r.Kind), a):
			return fault.Field(fmt.Sprintf("actions[%d]", i), "a key of kind %q may not %q; it may %v", r.Kind, clip(string(a)), allowed(r.Kind))
		case slices.Contains(r.Scope.Actions[:i], a):
			return fault.Field(fmt.Sprintf("actions[%d]", i), "%q is there twice", a)
		}
	}
	return nil
}

// MayGrant reports whether a caller may make, see and end keys of a kind.
// Nobody makes a key that can do more than their own; one that is narrowed
// makes none at all.
func (c Caller) MayGrant(kind Kind) bool {
	if !c.May(Manage) || !c.Scope.Empty() {
		return false
	}
	for _, a := range allowed(kind) {
		if !c.May(a) {
			return false
		}
	}
	return true
}

func plain(s string) bool {
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return len(s) <= maxOwner
}

func clip(s string) string { return s[:min(len(s), 40)] }
