package live

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// TokenPrefix begins every token of a sandbox. Its id follows, so that what it
// was signed with can be looked up.
const TokenPrefix = "aurea_sandbox_"

// MaxTokenTime is how long a token is good at most.
const MaxTokenTime = 24 * time.Hour

var errToken = fault.New(fault.Unauthenticated, "the token is not good, or not any more").WithCode("bad_key")

// Token is what a sandbox shows to be let near what is its own, until a time
// and while it lives. Nothing of it is kept: it is signed with what ends with
// the sandbox.
func (s *Sandbox) Token(until time.Time) string {
	head := binary.BigEndian.AppendUint64(nil, uint64(until.Unix())) //nolint:gosec // it is in our time
	return TokenPrefix + s.ID + "_" + base64.RawURLEncoding.EncodeToString(append(head, s.signToken(head)...))
}

// TokenOf returns the id of the sandbox that a token says it is of; ok is false
// for what is no token.
func TokenOf(token string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(token, TokenPrefix)
	id, _, more := strings.Cut(rest, "_")
	return id, ok && more
}

// CheckToken refuses a token that is not this sandbox's, or not any more.
func (s *Sandbox) CheckToken(token string, now time.Time) error {
	text, ours := strings.CutPrefix(token, TokenPrefix+s.ID+"_")
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	const head = 8
	if !ours || err != nil || len(raw) != head+sha256.Size || len(s.LinkKey) != linkKeyBytes || s.State.Ended() {
		return errToken
	}
	if !hmac.Equal(raw[head:], s.signToken(raw[:head])) {
		return errToken
	}
	until := time.Unix(int64(binary.BigEndian.Uint64(raw)), 0) //nolint:gosec // it was signed by us
	if !now.Before(until) {
		return errToken
	}
	return nil
}

// signToken signs in other words than links are signed in, so that neither can
// pass for the other.
func (s *Sandbox) signToken(head []byte) []byte {
	mac := hmac.New(sha256.New, s.LinkKey)
	mac.Write([]byte("token of " + s.ID + "\n"))
	mac.Write(head)
	return mac.Sum(nil)
}
