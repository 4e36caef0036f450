package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Bounds of a patch.
const (
	maxPatchFiles = 1000
	maxPatched    = 16 << 20 // bytes of one file before and after
	maxPatchedAll = 32 << 20 // bytes of all files afterwards: they are held until the last was tried
)

// PatchFiles applies a unified diff below a folder of a sandbox: all of it, or,
// where something in it does not fit, nothing.
func (k *Keeper) PatchFiles(ctx context.Context, id, dir string, diff io.Reader) ([]live.Patched, error) {
	files, err := k.Files(ctx, id)
	if err != nil {
		return nil, err
	}
	end, alone := k.beginAlone("patch of " + id)
	if !alone {
		return nil, fault.New(fault.Conflict, "another patch is just being applied to the sandbox; try again").WithCode("patch_running").Retry(time.Second)
	}
	defer end()
	text, err := io.ReadAll(diff)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the patch could not be read: %w", err).WithCode("bad_body")
	}
	parsed, _, err := gitdiff.Parse(bytes.NewReader(text))
	if err == nil && !bytes.Contains(text, []byte("diff --git ")) {
		strip(parsed)
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "the patch cannot be read: %w", err).WithCode("bad_patch")
	}
	if len(parsed) == 0 {
		return nil, fault.New(fault.Invalid, "the patch has no changes; send a unified diff").WithCode("bad_patch")
	}
	if len(parsed) > maxPatchFiles {
		return nil, fault.New(fault.Invalid, "the patch changes more than %d files", maxPatchFiles).WithCode("bad_patch")
	}
	edits := make([]edit, 0, len(parsed))
	sum := 0
	for _, f := range parsed { // all are tried before the first is written
		e, err := newEdit(ctx, files, dir, f)
		if err != nil {
			return nil, err
		}
		if sum += len(e.data); sum > maxPatchedAll {
			return nil, fault.New(fault.Invalid, "the files that the patch changes have more than %d bytes together; send it in parts", maxPatchedAll).WithCode("bad_patch")
		}
		edits = append(edits, e)
	}
	list := make([]live.Patched, 0, len(edits))
	for _, e := range edits {
		if err := e.write(ctx, files); err != nil {
			return list, fmt.Errorf("write %s: %w", e.to, err)
		}
		list = append(list, live.Patched{Path: e.to, From: e.from, Change: e.change})
	}
	return list, nil
}

// strip takes the a/ and b/ off the names of a plain diff, if all have them;
// those of git's own diffs have gone already.
func strip(files []*gitdiff.File) {
	marked := func(name string) bool {
		return name == "" || strings.HasPrefix(name, "a/") || strings.HasPrefix(name, "b/")
	}
	for _, f := range files {
		if !marked(f.OldName) || !marked(f.NewName) {
			return
		}
	}
	for _, f := range files {
		_, f.OldName, _ = strings.Cut(f.OldName, "/")
		_, f.NewName, _ = strings.Cut(f.NewName, "/")
	}
}

// edit is what a patch does to one file.
type edit struct {
	change   string
	from, to string // absolute; from is "" unless it differs
	mode     uint32
	data     []byte
}

func newEdit(ctx context.Context, files sandbox.Filer, dir string, f *gitdiff.File) (e edit, err error) {
	name := f.NewName
	if f.IsDelete {
		name = f.OldName
	}
	for _, n := range []string{name, f.OldName} {
		if n != "" {
			if err := live.CheckRelative("patch", n); err != nil {
				return e, err
			}
		}
	}
	if f.NewMode&0o170000 == 0o120000 || f.NewMode&0o170000 == 0o160000 {
		return e, fault.New(fault.Invalid, "%s: a patch can change plain files only", name).WithCode("bad_patch")
	}
	e = edit{change: "modified", to: path.Join(dir, name), mode: uint32(f.NewMode.Perm())}
	var old bytes.Buffer
	if !f.IsNew {
		if _, err := files.ReadFile(ctx, path.Join(dir, f.OldName), 0, maxPatched+1, &old); err != nil {
			return e, fmt.Errorf("read %s: %w", f.OldName, err)
		}
		if old.Len() > maxPatched {
			return e, fault.New(fault.Invalid, "%s has more than %d bytes", f.OldName, maxPatched).WithCode("bad_patch")
		}
	}
	switch {
	case f.IsNew:
		e.change = "created"
		if _, err := files.Stat(ctx, e.to); err == nil {
			return e, fault.New(fault.Conflict, "the patch makes %s, which is there already", name).WithCode("patch_conflict")
		}
	case f.IsDelete:
		e.change = "deleted"
	case f.IsRename:
		e.change, e.from = "renamed", path.Join(dir, f.OldName)
	}
	var out bytes.Buffer
	if err := gitdiff.Apply(&out, bytes.NewReader(old.Bytes()), f); err != nil {
		var conflict *gitdiff.Conflict
		if errors.As(err, &conflict) || errors.Is(err, &gitdiff.Conflict{}) {
			return e, fault.New(fault.Conflict, "the patch does not fit %s: %w", name, err).WithCode("patch_conflict")
		}
		return e, fault.New(fault.Invalid, "the patch of %s cannot be applied: %w", name, err).WithCode("bad_patch")
	}
	e.data = out.Bytes()
	return e, nil
}

func (e edit) write(ctx context.Context, files sandbox.Filer) error {
	if e.change == "deleted" {
		return files.Remove(ctx, e.to, false)
	}
	if _, err := files.WriteFile(ctx, e.to, e.mode, bytes.NewReader(e.data)); err != nil {
		return err
	}
	if e.from != "" {
		return files.Remove(ctx, e.from, false)
	}
	return nil
}
