// Package blob keeps bytes under their SHA-256: snapshots, artifacts, output.
//
// A blob is immutable, and storing one that is there is free. The package
// knows nothing of jobs; who refers to a blob decides how long it lives.
package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Empty is the digest of no bytes. It exists in every store.
const Empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// Store keeps blobs. Digests are lower-case hex; another form is a fault of
// kind Invalid, since a digest often comes from outside.
type Store interface {
	// Put stores size bytes of r, which must have the digest: otherwise
	// nothing is stored and the fault is of kind Invalid. When it returns nil
	// the bytes are on disk. r is not read when the blob is there. It is wanted
	// from now on, as Has says.
	Put(ctx context.Context, digest string, size int64, r io.Reader) error
	// Open returns a blob and its size, or a fault of kind NotFound.
	Open(ctx context.Context, digest string) (Blob, int64, error)
	// Has reports whether the blob is there. One that is there is wanted from
	// now on: Remove leaves it to whoever asked for the time that Remove allows.
	Has(ctx context.Context, digest string) (bool, error)
	// Walk calls see for each blob until see returns an error, which it then
	// returns. Blobs that come or go meanwhile may be seen or not.
	Walk(ctx context.Context, see func(Info) error) error
	// Remove removes a blob unless it was wanted at or after since, and reports
	// whether it did. One that is being read is read to its end.
	Remove(ctx context.Context, digest string, since time.Time) (bool, error)
}

// Info describes a blob.
type Info struct {
	Digest string
	Bytes  int64
	Wanted time.Time // when it was last put or asked for, to within a minute
}

// Blob is an open blob.
type Blob interface {
	io.ReadSeekCloser
	io.ReaderAt
}

// Digest returns the digest of p.
func Digest(p []byte) string {
	sum := sha256.Sum256(p)
	return hex.EncodeToString(sum[:])
}

// CheckDigest refuses what is not a digest.
func CheckDigest(digest string) error {
	if len(digest) != 2*sha256.Size {
		return fault.Field("sha256", "must have %d hex digits", 2*sha256.Size)
	}
	for _, c := range []byte(digest) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return fault.Field("sha256", "must be lower-case hex")
		}
	}
	return nil
}
