package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
)

const indexVersion = 1

// index is index.json: what the store knows.
type index struct {
	Version int               `json:"version"`
	Images  map[string]Record `json:"images"`  // by digest
	Names   map[string]string `json:"names"`   // name → digest
	Aliases map[string]string `json:"aliases"` // name → name
}

// Record is what is known of an image.
type Record struct {
	Digest string    `json:"digest"`
	Added  time.Time `json:"added"`
	// Source says where it came from.
	Source       string `json:"source"`
	Architecture string `json:"architecture,omitempty"`
	// Config and Layers are blobs. The host's image has none.
	Config string  `json:"config,omitempty"`
	Layers []Layer `json:"layers,omitempty"`
	// Size is that of the blobs.
	Size int64 `json:"size"`
	// Host is the state of the host that its image shows.
	Host string `json:"host,omitempty"`

	Env  []string `json:"env,omitempty"`
	User string   `json:"user,omitempty"`
	// Left is what the root does not have, LeftCount how much that is.
	Left      []Left `json:"left,omitempty"`
	LeftCount int    `json:"left_count,omitempty"`
}

// Layer is one layer of an image.
type Layer struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

func emptyIndex() index {
	return index{Version: indexVersion, Images: map[string]Record{}, Names: map[string]string{}, Aliases: map[string]string{}}
}

func (s *Store) indexPath() string { return filepath.Join(s.config.Dir, "index.json") }

// readIndex reads the index, or what it was when it was last read if nobody has
// written it since. Nobody may change what it returns.
func (s *Store) readIndex() (index, error) {
	var now unix.Stat_t
	if err := unix.Stat(s.indexPath(), &now); errors.Is(err, fs.ErrNotExist) {
		return emptyIndex(), nil
	} else if err != nil {
		return index{}, fmt.Errorf("read the image index: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen.Ino == now.Ino && s.seen.Mtim == now.Mtim && s.seen.Size == now.Size {
		return s.cached, nil
	}
	body, err := os.ReadFile(s.indexPath())
	if err != nil {
		return index{}, fmt.Errorf("read the image index: %w", err)
	}
	i, err := parseIndex(body)
	if err != nil {
		return index{}, err
	}
	s.cached, s.seen = i, now
	return i, nil
}

func parseIndex(body []byte) (index, error) {
	var i index
	if err := json.Unmarshal(body, &i); err != nil {
		return index{}, fmt.Errorf("read the image index: %w", err)
	}
	if i.Version != indexVersion {
		return index{}, fault.New(fault.Unavailable, "the image index has version %d, this release knows %d", i.Version, indexVersion)
	}
	if i.Images == nil || i.Names == nil || i.Aliases == nil {
		return index{}, fault.New(fault.Internal, "the image index is damaged; remove index.json and pull again")
	}
	return i, nil
}

// change changes the index: alone, on the newest, and whole.
func (s *Store) change(ctx context.Context, do func(i *index) error) error {
	l, err := takeLock(ctx, filepath.Join(s.config.Dir, "locks", "index"), true)
	if err != nil {
		return err
	}
	defer l.release()
	i := emptyIndex()
	switch body, err := os.ReadFile(s.indexPath()); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("read the image index: %w", err)
	default:
		if i, err = parseIndex(body); err != nil {
			return err
		}
	}
	if err := do(&i); err != nil {
		return err
	}
	body, err := json.MarshalIndent(i, "", " ")
	if err != nil {
		return fmt.Errorf("write the image index: %w", err)
	}
	f, err := s.aside()
	if err != nil {
		return err
	}
	defer f.drop()
	if _, err := f.Write(append(body, '\n')); err != nil {
		return fmt.Errorf("write the image index: %w", err)
	}
	return f.keep(s.indexPath(), 0o600)
}
