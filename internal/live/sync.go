package live

import (
	"cmp"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Workspace is the folder that is synced where none is named.
const Workspace = "/workspace"

// Sync says how the files of a sandbox are kept alike with those of a session.
// Zero values stand for what is usual.
type Sync struct {
	Session  string `json:"session,omitempty"`
	Root     string `json:"root,omitempty"` // a folder in the sandbox
	Strategy string `json:"strategy,omitempty"`
	// Continuous syncs whenever something changes, and before the sandbox ends.
	Continuous bool `json:"continuous,omitempty"`
}

// Check refuses what is out of bounds; nil is not.
func (s *Sync) Check() error {
	if s == nil {
		return nil
	}
	if err := checkWord("sync.session", s.Session, MaxName); err != nil {
		return err
	}
	if s.Root != "" && (!path.IsAbs(s.Root) || path.Clean(s.Root) != s.Root || len(s.Root) > maxPath || !utf8.ValidString(s.Root) || strings.ContainsRune(s.Root, 0)) {
		return fault.Field("sync.root", "must be an absolute path without . and ..")
	}
	switch s.Strategy {
	case "", "last_write_wins", "ask", "auto_merge":
		return nil
	}
	return fault.Field("sync.strategy", "must be last_write_wins, ask or auto_merge")
}

// SyncAs is how a sandbox is synced by who asks: what that leaves out is as the
// sandbox has it, and its session is that on whose behalf it lives, or else its
// own.
func (s *Sandbox) SyncAs(asked Sync) Sync {
	var own Sync
	if s.Spec.Sync != nil {
		own = *s.Spec.Sync
	}
	return Sync{
		Session:  cmp.Or(asked.Session, own.Session, s.Session, s.Name, s.ID),
		Root:     cmp.Or(asked.Root, own.Root, Workspace),
		Strategy: cmp.Or(asked.Strategy, own.Strategy), Continuous: own.Continuous,
	}
}
