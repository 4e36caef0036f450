package manifest

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Terms are what a signature binds besides the seven fields: under which
// contract the paper counts, for whom, and until when it may be used.
type Terms struct {
	Contract string
	Owner    string
	Until    time.Time
}

// form is how the signatures of this version begin. Another form is another
// version, and is refused here.
const form = "ed25519-v1"

// Key signs manifests. Its public half is kept where everybody who checks can
// see it.
type Key struct {
	ID      string
	private ed25519.PrivateKey
}

// PublicKey is what signatures are checked against.
type PublicKey struct {
	ID        string
	Public    ed25519.PublicKey
	CreatedAt time.Time
	RevokedAt time.Time // zero while it is good
}

// NewKey makes a key from a seed of ed25519.SeedSize bytes.
func NewKey(seed []byte) (Key, error) {
	if len(seed) != ed25519.SeedSize {
		return Key{}, fault.New(fault.Invalid, "a key for manifests has %d bytes, not %d", ed25519.SeedSize, len(seed)).WithCode("bad_key")
	}
	private := ed25519.NewKeyFromSeed(seed)
	return Key{ID: keyID(private.Public().(ed25519.PublicKey)), private: private}, nil
}

// keyID names a key after its public half, so that a name cannot be taken.
func keyID(public ed25519.PublicKey) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:8])
}

// Public returns what others check with.
func (k Key) Public(now time.Time) PublicKey {
	return PublicKey{ID: k.ID, Public: k.private.Public().(ed25519.PublicKey), CreatedAt: now}
}

// Sign returns the signature of a manifest under terms.
func (k Key) Sign(m *Manifest, t Terms) string {
	sig := ed25519.Sign(k.private, canonical(k.ID, m, t))
	return strings.Join([]string{form, k.ID, base64.RawURLEncoding.EncodeToString(sig)}, ".")
}

// KeyOf returns the id of the key that a signature names; ok is false where it
// is no signature of this form.
func KeyOf(signature string) (id string, ok bool) {
	parts := strings.Split(signature, ".")
	if len(parts) != 3 || parts[0] != form || len(parts[1]) != 16 {
		return "", false
	}
	return parts[1], true
}

// Verify reports whether a manifest carries a signature by the key, which must
// not be revoked.
func (p PublicKey) Verify(m *Manifest, t Terms) bool {
	id, ok := KeyOf(m.Signature)
	if !ok || id != p.ID || !p.RevokedAt.IsZero() || len(p.Public) != ed25519.PublicKeySize || keyID(p.Public) != p.ID {
		return false
	}
	text := m.Signature[strings.LastIndexByte(m.Signature, '.')+1:]
	sig, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || base64.RawURLEncoding.EncodeToString(sig) != text { // the decoder overlooks ends of lines
		return false
	}
	return ed25519.Verify(p.Public, canonical(id, m, t), sig)
}

// canonical is what is signed: a line for each thing, in one order, each a JSON
// string or number, so that no value can run into the next.
func canonical(key string, m *Manifest, t Terms) []byte {
	var b []byte
	line := func(name string, value any) {
		text, _ := json.Marshal(value) // of texts, numbers and bools
		b = append(append(append(append(b, name...), '='), text...), '\n')
	}
	b = append(b, "aurea manifest v1\n"...)
	line("key", key)
	line("contract", t.Contract)
	line("owner", t.Owner)
	line("until", moment(t.Until))
	line("worker_id", m.WorkerID)
	line("parent_id", m.ParentID)
	line("depth", m.Depth)
	line("issued_at", moment(m.IssuedAt))
	line("state_snapshot", string(m.State))
	line("cpu_limit", strconv.FormatFloat(m.Resources.CPULimit, 'g', -1, 64))
	line("memory_limit_mb", m.Resources.MemoryLimitMB)
	line("allow_controller", m.Resources.Network.AllowController)
	line("allow_external", m.Resources.Network.AllowExternal)
	return b
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Secret signs manifests in the older form: HMAC-SHA256 in hexadecimal digits,
// for those who share a secret and check for themselves.
type Secret struct{ secret []byte }

const minSecret = 8

// NewSecret takes a secret of at least 8 characters that is not blank.
func NewSecret(text string) (Secret, error) {
	if len([]rune(text)) < minSecret || strings.TrimSpace(text) == "" {
		return Secret{}, fault.New(fault.Invalid, "the secret for manifests must have at least %d characters and not be blank", minSecret).WithCode("bad_secret")
	}
	return Secret{secret: []byte(text)}, nil
}

// Sign returns the signature of a manifest.
func (s Secret) Sign(m *Manifest) string {
	mac := hmac.New(sha256.New, s.secret)
	mac.Write(sourceForm(m))
	return hex.EncodeToString(mac.Sum(nil))
}

// Verify reports whether a manifest carries a signature by the secret.
func (s Secret) Verify(m *Manifest) bool {
	return len(s.secret) > 0 && subtle.ConstantTimeCompare([]byte(s.Sign(m)), []byte(m.Signature)) == 1
}

// sourceForm is the form that the older signature is over: the fields in their
// order with a bar between, numbers and truth as Python writes them.
func sourceForm(m *Manifest) []byte {
	cpu := strconv.FormatFloat(m.Resources.CPULimit, 'f', -1, 64)
	if !strings.Contains(cpu, ".") {
		cpu += ".0"
	}
	truth := map[bool]string{true: "True", false: "False"}
	return []byte(strings.Join([]string{
		m.WorkerID, m.ParentID, strconv.Itoa(m.Depth), isoformat(m.IssuedAt), string(m.State), cpu,
		strconv.FormatInt(m.Resources.MemoryLimitMB, 10), truth[m.Resources.Network.AllowController], truth[m.Resources.Network.AllowExternal],
	}, "|"))
}

// isoformat is a time as Python's isoformat has it.
func isoformat(t time.Time) string {
	t = t.UTC()
	text := t.Format("2006-01-02T15:04:05")
	if micro := t.Nanosecond() / 1000; micro > 0 {
		text += fmt.Sprintf(".%06d", micro)
	}
	return text + "+00:00"
}

// Signer signs what is issued, and checks the form that only it can check.
type Signer struct {
	Key Key
	// Secrets are for the older form: the first signs, all are good for
	// checking. None is that the Key signs.
	Secrets []Secret
}

// Sign puts a signature on a manifest.
func (s *Signer) Sign(m *Manifest, t Terms) {
	if len(s.Secrets) > 0 {
		m.Signature = s.Secrets[0].Sign(m)
		return
	}
	m.Signature = s.Key.Sign(m, t)
}

// VerifySecret reports whether one of the secrets made the signature. All are
// tried, so that the time tells nothing.
func (s *Signer) VerifySecret(m *Manifest) bool {
	good := false
	for _, secret := range s.Secrets {
		if secret.Verify(m) {
			good = true
		}
	}
	return good
}
