package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Config says where a store is and how it behaves.
type Config struct {
	// Dir is the store's own folder.
	Dir string
	// Default is the image of requests that name none; if it is not there they
	// get the host's.
	Default string
	// Aliases say what stands in for images that are not here, by name;
	// DefaultAlias is the default image.
	Aliases map[string]string
	// Architecture is which of an image's variants is taken; by default the
	// machine's own.
	Architecture string
	// Bounds hold images; by default DefaultBounds.
	Bounds Bounds
	// Host says what the host's image shows; by default DefaultHost.
	Host Host
	// Keychain knows the passwords of registries; nil knows none.
	Keychain authn.Keychain
	// Insecure are the registries, as host or host:port, that may be spoken to
	// without TLS. Those on this machine always may.
	Insecure []string
	Logger   *slog.Logger
}

// Store keeps images. It may be used from several goroutines.
type Store struct {
	config Config

	mu     sync.Mutex
	cached index
	seen   unix.Stat_t
}

// Open opens the store in a folder, and makes it if need be.
func Open(c Config) (*Store, error) {
	if c.Architecture == "" {
		c.Architecture = runtime.GOARCH
	}
	if c.Bounds == (Bounds{}) {
		c.Bounds = DefaultBounds()
	}
	if c.Host.Top == "" {
		c.Host = DefaultHost()
	}
	if c.Keychain == nil {
		c.Keychain = authn.NewMultiKeychain()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if !filepath.IsAbs(c.Dir) {
		return nil, fault.New(fault.Internal, "the image store needs an absolute path, not %q", c.Dir)
	}
	if c.Default != "" {
		if _, err := ParseName(c.Default); err != nil {
			return nil, fault.Field("SANDBOX_IMAGE", "%w", err)
		}
	}
	aliases, err := parseAliases(c.Aliases)
	if err != nil {
		return nil, err
	}
	c.Aliases = aliases
	for _, name := range []string{"", "blobs", "blobs/sha256", "roots", "tmp", "locks"} {
		if err := os.MkdirAll(filepath.Join(c.Dir, name), 0o700); err != nil {
			return nil, fmt.Errorf("make the image store: %w", err)
		}
	}
	s := &Store{config: c}
	s.sweep()
	return s, nil
}

// aside is a file that is not there yet. While its writer lives it is locked,
// so that others can tell it from what a crash left.
type aside struct{ *os.File }

func (s *Store) aside() (aside, error) {
	for {
		f, err := os.CreateTemp(filepath.Join(s.config.Dir, "tmp"), "new-")
		if err != nil {
			return aside{}, fmt.Errorf("write into the image store: %w", err)
		}
		if heldByNobody(f) {
			var now, then unix.Stat_t
			if unix.Fstat(int(f.Fd()), &now) == nil && unix.Stat(f.Name(), &then) == nil && now.Ino == then.Ino {
				return aside{f}, nil
			}
		}
		_ = f.Close() // a sweep was quicker than our lock
	}
}

// keep gives the file its place: whole and on disk, or not at all.
func (a aside) keep(path string, mode fs.FileMode) error {
	if err := a.Chmod(mode); err != nil {
		return fmt.Errorf("write into the image store: %w", err)
	}
	if err := a.Sync(); err != nil {
		return fmt.Errorf("write into the image store: %w", err)
	}
	if err := os.Rename(a.Name(), path); err != nil {
		return fmt.Errorf("write into the image store: %w", err)
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("write into the image store: %w", err)
	}
	defer func() { _ = folder.Close() }()
	if err := folder.Sync(); err != nil {
		return fmt.Errorf("write into the image store: %w", err)
	}
	return nil
}

// drop removes the file unless it was kept, and closes it.
func (a aside) drop() {
	var now, then unix.Stat_t
	if unix.Fstat(int(a.Fd()), &now) == nil && unix.Stat(a.Name(), &then) == nil && now.Ino == then.Ino {
		_ = os.Remove(a.Name())
	}
	_ = a.Close()
}

// sweep removes what writers that are dead have left.
func (s *Store) sweep() {
	names, err := filepath.Glob(filepath.Join(s.config.Dir, "tmp", "new-*"))
	if err != nil {
		return
	}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		if heldByNobody(f) {
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				s.config.Logger.Warn("a half-written file is left", "file", name, "error", err)
			}
		}
		_ = f.Close()
	}
}

// using keeps the garbage collector away while something is added.
func (s *Store) using(ctx context.Context) (*lock, error) {
	return takeLock(ctx, filepath.Join(s.config.Dir, "locks", "use"), false)
}

// making is the lock of whoever makes the root of an image.
func (s *Store) making(ctx context.Context, digest string) (*lock, error) {
	return takeLock(ctx, filepath.Join(s.config.Dir, "locks", "root-"+hexOf(digest)[:2]), true)
}

// Progress is told how far something has come. Total is 0 where it is unknown.
// It may be called from several goroutines.
type Progress func(Step)

// Step is a moment of something that takes time.
type Step struct {
	// Doing says what is done: "pull", "unpack", "copy".
	Doing string `json:"doing"`
	// What is the layer or the file at hand.
	What        string `json:"what,omitempty"`
	Done, Total int64
}

func (p Progress) tell(s Step) {
	if p != nil {
		p(s)
	}
}
