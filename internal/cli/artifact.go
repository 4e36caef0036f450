package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aurea-dev/aurea/client"
	"github.com/aurea-dev/aurea/internal/fault"
)

// saveArtifacts writes what a program left. Names come from the program: each
// stays inside the folder, and goes through no link that lies there.
func saveArtifacts(folder string, r *client.RunResult) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("save artifacts: %w", err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return fmt.Errorf("save artifacts: %w", err)
	}
	defer func() { _ = root.Close() }()
	for _, name := range slices.Sorted(maps.Keys(r.Artifacts)) {
		data, err := r.Artifact(name)
		if err == nil {
			err = saveArtifact(root, name, data)
		}
		if err != nil {
			return fmt.Errorf("save %s: %w", plain(name), err)
		}
	}
	return nil
}

func saveArtifact(root *os.Root, name string, data []byte) error {
	if !filepath.IsLocal(name) || strings.ContainsRune(name, '\\') {
		return fault.New(fault.Invalid, "the name leads out of the folder")
	}
	if err := makeFolders(root, filepath.Dir(name)); err != nil {
		return err
	}
	// What is there makes way, unless it is a folder that holds something:
	// written to, a link would lead elsewhere, and a pipe to nobody.
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// makeFolders makes those that are missing on the way to a file; each that is
// there must be one itself, and no link to one.
func makeFolders(root *os.Root, path string) error {
	if path == "." {
		return nil
	}
	if err := makeFolders(root, filepath.Dir(path)); err != nil {
		return err
	}
	about, err := root.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return root.Mkdir(path, 0o755)
	case err != nil:
		return err
	case !about.IsDir():
		return fault.New(fault.Conflict, "%s is there and is no folder", plain(path))
	}
	return nil
}
