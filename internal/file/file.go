// Package file is the noun of files that are stored for a session and outlast
// its sandboxes: what is known of one, its versions, and the names that it may
// have. It stores nothing; filesync decides what becomes of a file, store and
// blob keep it.
package file

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/aurea-dev/aurea/internal/fault"
)

// File is one version of a stored file. The newest is the file itself; one that
// was deleted stays as a mark of that.
type File struct {
	Session string `json:"session_id"`
	Path    string `json:"path"` // relative, with slashes
	// Version counts the versions of a path from 1.
	Version  int64     `json:"version"`
	Size     int64     `json:"size"`
	SHA256   string    `json:"sha256,omitempty"` // "" when it was deleted
	Mode     uint32    `json:"mode,omitempty"`
	Modified time.Time `json:"modified_at"`
	Stored   time.Time `json:"stored_at"`
	Deleted  bool      `json:"deleted,omitempty"`
	// Origin is the sandbox that it came from, or "" for somebody outside.
	Origin string `json:"origin,omitempty"`
	// Lost says that it never was the newest: another version won over it.
	Lost bool `json:"lost,omitempty"`
}

// Synced is what was on both sides when a path of a sandbox was last synced.
type Synced struct {
	Path   string
	SHA256 string
	Mode   uint32
	// Size and Modified are those of the file in the sandbox, by which a change
	// can be told without reading it, unless it came within the same moment.
	Size     int64
	Modified time.Time
	At       time.Time
}

// Usage is what a session keeps.
type Usage struct {
	Files int64 `json:"files"`     // that are not deleted
	Bytes int64 `json:"bytes"`     // of those
	Paths int64 `json:"-"`         // with those that are deleted
	Older int64 `json:"old_bytes"` // of versions that are not the newest
}

// The bounds of names.
const (
	MaxPath = 1024
	maxName = 255
	maxDeep = 64
)

// CheckPath refuses a path that could mean something else somewhere: one that is
// absolute or leads up, is too long, holds control characters or a backslash, or
// is not in the one normal form of its characters. Paths come from sandboxes and
// from callers.
func CheckPath(path string) error {
	switch {
	case path == "":
		return bad("must not be empty")
	case len(path) > MaxPath:
		return bad("has more than %d bytes", MaxPath)
	case !utf8.ValidString(path):
		return bad("must be UTF-8")
	case strings.HasPrefix(path, "/"):
		return bad("must be relative")
	case strings.Contains(path, `\`):
		return bad("must not hold a backslash")
	case strings.ContainsFunc(path, odd):
		return bad("must not hold control characters")
	case !norm.NFC.IsNormalString(path):
		return bad("must be in Unicode normal form C")
	case strings.Count(path, "/") >= maxDeep:
		return bad("is more than %d folders deep", maxDeep)
	}
	for name := range strings.SplitSeq(path, "/") {
		if name == "" || name == "." || name == ".." {
			return bad("must not have empty, . or .. parts")
		}
		if len(name) > maxName {
			return bad("has a part of more than %d bytes", maxName)
		}
	}
	return nil
}

// odd characters are shown as something else than they are: controls, and those
// that turn the direction of text around.
func odd(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

func bad(format string, args ...any) error {
	return fault.Field("path", format, args...).WithCode("bad_path")
}

// The bounds of sessions.
const (
	maxSession = 128
	maxKey     = 512
)

// Key is what the files of an owner's session are kept under: two owners may
// have sessions of the same name, and never see each other's files.
func Key(owner, session string) (string, error) {
	if len(session) > maxSession {
		return "", fault.Field("session", "must have 1 to %d bytes of text", maxSession)
	}
	if session == "" || owner == "" || strings.Contains(owner, "/") { // the first slash ends the owner
		return "", fault.Field("session", "must be the name of a session of somebody")
	}
	key := owner + "/" + session
	return key, CheckSession(key)
}

// CheckSession refuses what cannot be the key of a session.
func CheckSession(id string) error {
	if id == "" || len(id) > maxKey || !utf8.ValidString(id) || strings.ContainsFunc(id, odd) {
		return fault.Field("session", "must have 1 to %d bytes of text", maxSession)
	}
	return nil
}
