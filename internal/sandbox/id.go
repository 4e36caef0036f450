package sandbox

import (
	"encoding/base32"
	"fmt"

	"github.com/google/uuid"
)

// NewID returns a new sandbox id: 26 lower-case letters and digits that sort by
// the time of their making, and can stand in a host name.
func NewID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make a sandbox id: %w", err)
	}
	// The alphabet is in byte order, so that ids sort as their bits do.
	const sorted = "0123456789abcdefghijklmnopqrstuv"
	return base32.NewEncoding(sorted).WithPadding(base32.NoPadding).EncodeToString(id[:]), nil
}

// validID reports whether id is non-empty, at most limit long, and made of
// lower-case letters, digits and what extra allows.
func validID(id string, limit int, extra func(byte) bool) bool {
	if id == "" || len(id) > limit {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && !extra(c) {
			return false
		}
	}
	return true
}
