package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/aurea-dev/aurea/internal/image/erofs"
)

// document is what counts of an image's configuration.
type document struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Config       struct {
		Env  []string `json:"Env"`
		User string   `json:"User"`
	} `json:"config"`
	Rootfs struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

func parseDocument(body []byte) (document, error) {
	var d document
	if err := json.Unmarshal(body, &d); err != nil {
		return document{}, hostile("read the image's configuration: %w", err)
	}
	return d, d.check()
}

// check refuses an environment that no process could have.
func (d document) check() error {
	const most, longest = 512, 64 << 10
	size := 0
	for _, v := range d.Config.Env {
		size += len(v)
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" || strings.ContainsRune(v, 0) {
			return hostile("%q is not a variable of an environment", v)
		}
	}
	if len(d.Config.Env) > most || size > longest {
		return hostile("the image's environment has %d variables and %d bytes", len(d.Config.Env), size)
	}
	if strings.ContainsRune(d.Config.User, 0) || len(d.Config.User) > erofs.MaxName {
		return hostile("%q is not a user", d.Config.User)
	}
	return nil
}

// rootForm names what furnish adds to an image, and how: another form means
// other roots, made from the same blobs.
const rootForm = "2"

// rootPath is where the root of an image is, or will be.
func (s *Store) rootPath(digest string) string {
	return filepath.Join(s.config.Dir, "roots", hexOf(digest)+"-"+rootForm+".erofs")
}

func (s *Store) hasRoot(digest string) (bool, error) {
	_, err := os.Lstat(s.rootPath(digest))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// makeRoot makes the root of an image from its blobs, unless it is there. Of
// several that want it at once one makes it, and the others wait.
func (s *Store) makeRoot(ctx context.Context, r Record, progress Progress) ([]Left, int, error) {
	l, err := s.making(ctx, r.Digest)
	if err != nil {
		return nil, 0, err
	}
	defer l.release()
	if there, err := s.hasRoot(r.Digest); err != nil || there {
		return r.Left, r.LeftCount, err
	}
	body, err := s.readBlob(r.Config)
	if err != nil {
		return nil, 0, err
	}
	d, err := parseDocument(body)
	if err != nil {
		return nil, 0, err
	}
	if len(d.Rootfs.DiffIDs) != len(r.Layers) {
		return nil, 0, hostile("the image has %d layers and its configuration %d", len(r.Layers), len(d.Rootfs.DiffIDs))
	}
	f, err := s.aside()
	if err != nil {
		return nil, 0, err
	}
	defer f.drop()
	t, w := newTree(s.config.Bounds), erofs.NewWriter(f.File)
	for i, layer := range r.Layers {
		if err := s.layer(ctx, t, layer, d.Rootfs.DiffIDs[i], w, progress); err != nil {
			return nil, 0, fmt.Errorf("unpack layer %d of %d: %w", i+1, len(r.Layers), err)
		}
	}
	if err := finishRoot(f, t, w, s.rootPath(r.Digest)); err != nil {
		return nil, 0, err
	}
	return t.left, t.leftN, nil
}

// finishRoot adds what is ours and gives the root its place.
func finishRoot(f aside, t *tree, w *erofs.Writer, path string) error {
	if err := t.furnish(w); err != nil {
		return err
	}
	if err := w.Finish(t.root); err != nil {
		return fmt.Errorf("write the root: %w", err)
	}
	return f.keep(path, 0o444)
}
