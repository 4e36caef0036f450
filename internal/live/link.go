package live

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// linkKeyBytes is the length of the key that links into a sandbox are signed
// with. It is the sandbox's own, and dies with it.
const linkKeyBytes = 32

// NewLinkKey makes a key for links into a sandbox.
func NewLinkKey() []byte {
	key := make([]byte, linkKeyBytes)
	_, _ = rand.Read(key) // never fails: crypto/rand ends the process instead
	return key
}

// errLink says no more than that: why a link does not open is nobody's business
// who does not have a good one.
var errLink = fault.New(fault.Unauthenticated, "This link is not good, or not any more; ask for another.").WithCode("bad_link")

// Link is a token that opens one port of a sandbox until a time.
func (s *Sandbox) Link(port uint16, until time.Time) string {
	head := linkHead(port, until)
	return base64.RawURLEncoding.EncodeToString(append(head, s.sign(head)...))
}

// CheckLink refuses a token that does not open the port now.
func (s *Sandbox) CheckLink(port uint16, token string, now time.Time) error {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) != linkHeadBytes+sha256.Size || len(s.LinkKey) != linkKeyBytes || s.State.Ended() {
		return errLink
	}
	head := raw[:linkHeadBytes]
	if !hmac.Equal(raw[linkHeadBytes:], s.sign(head)) || binary.BigEndian.Uint16(head) != port {
		return errLink
	}
	until := time.Unix(int64(binary.BigEndian.Uint64(head[2:])), 0) //nolint:gosec // it was signed by us
	if !now.Before(until) {
		return errLink
	}
	return nil
}

const linkHeadBytes = 10

func linkHead(port uint16, until time.Time) []byte {
	head := binary.BigEndian.AppendUint16(nil, port)
	return binary.BigEndian.AppendUint64(head, uint64(until.Unix())) //nolint:gosec // it is in our time
}

func (s *Sandbox) sign(head []byte) []byte {
	mac := hmac.New(sha256.New, s.LinkKey)
	mac.Write([]byte("port of " + s.ID + "\n"))
	mac.Write(head)
	return mac.Sum(nil)
}
