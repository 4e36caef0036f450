package store

import (
	"context"

	"github.com/aurea-dev/aurea/internal/file"
)

// Files keeps what is known of the files of sessions; their bytes are blobs.
type Files interface {
	// Get returns the newest version of a path, also one that says that it was
	// deleted, and whether there is any.
	Get(ctx context.Context, session, path string) (file.File, bool, error)
	// List returns the newest versions of paths behind after, in order, the
	// deleted ones among them.
	List(ctx context.Context, session, after string, limit int) ([]file.File, error)
	// Put makes f the newest version and sets its Version. The newest so far
	// must be was, 0 for none: otherwise it is a Conflict with CodeFileChanged.
	Put(ctx context.Context, f *file.File, was int64) error
	// Keep stores a version that is not to be the newest, and sets its Version.
	// Where a version of the path has the same bytes nothing is stored.
	Keep(ctx context.Context, f *file.File) error
	// Versions returns those of a path, the newest first.
	Versions(ctx context.Context, session, path string, limit int) ([]file.File, error)
	// Usage adds up what a session keeps.
	Usage(ctx context.Context, session string) (file.Usage, error)
	// Trim drops versions that are not the newest, the oldest first, until at
	// least so many bytes of them are gone or there are none left, and then
	// marks of deleted paths until at most so many paths are left.
	Trim(ctx context.Context, session string, bytes, paths int64) error
	// Forget drops everything of a session.
	Forget(ctx context.Context, session string) error
}

// CodeFileChanged is the code of the Conflict of a file that somebody else
// changed meanwhile.
const CodeFileChanged = "file_changed"

// Synced keeps what a sandbox and its session had in common when they were last
// synced.
type Synced interface {
	// List returns what a sandbox has, for paths behind after, in order.
	List(ctx context.Context, sandbox, after string, limit int) ([]file.Synced, error)
	// Put remembers one, in place of the last of its path.
	Put(ctx context.Context, sandbox string, s *file.Synced) error
	// Drop forgets paths.
	Drop(ctx context.Context, sandbox string, paths ...string) error
	// Forget forgets all of a sandbox.
	Forget(ctx context.Context, sandbox string) error
}
