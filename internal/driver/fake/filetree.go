package fake

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// info is what is known of a node under the path that was asked for.
func info(name string, n *node) sandbox.FileInfo {
	i := sandbox.FileInfo{
		Path: name, Name: path.Base(name), Type: n.fileType(), Size: int64(len(n.data)),
		Mode: uint32(n.mode.Perm()), ModTime: n.modified, Target: n.target,
	}
	if n.isLink() {
		i.Size = int64(len(n.target))
	}
	return i
}

func (n *node) fileType() sandbox.FileType {
	switch {
	case n.isDir():
		return sandbox.TypeDir
	case n.isLink():
		return sandbox.TypeLink
	}
	return sandbox.TypeFile
}

// find is resolve of what must exist.
func (t *tree) find(name string, follow bool) (string, *node, error) {
	at, n, err := t.resolve(name, follow)
	if err == nil && n == nil {
		err = fs.ErrNotExist
	}
	return at, n, err
}

// look returns what stands at name itself.
func (t *tree) look(name string) (sandbox.FileInfo, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, n, err := t.find(name, false)
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	return info(name, n), nil
}

// list lists what is below name.
func (t *tree) list(name string, depth, most int) (found []sandbox.FileInfo, more bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, n, err := t.find(name, true)
	if err == nil && !n.isDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, false, err
	}
	size := 0
	for _, p := range t.below(at) {
		rel := strings.TrimPrefix(strings.TrimPrefix(p, at), "/")
		if rel == "" || strings.Count(rel, "/") >= depth {
			continue
		}
		size += len(rel)
		if len(found) >= most || size > sandbox.MaxListing {
			return found, true, nil
		}
		found = append(found, info(path.Join(name, rel), t.nodes[p]))
	}
	return found, false, nil
}

// replace puts a file at name, following links, and makes its folder. Mode 0
// keeps what is there.
func (t *tree) replace(name string, mode fs.FileMode, data []byte) (sandbox.FileInfo, error) {
	if err := t.mkdirAll(path.Dir(name)); err != nil {
		return sandbox.FileInfo{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at, old, err := t.resolve(name, true)
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	if mode == 0 {
		mode = 0o644
		if old != nil {
			mode = old.mode.Perm()
		}
	}
	if err := t.putLocked(name, &node{mode: mode, data: data}, true); err != nil {
		return sandbox.FileInfo{}, err
	}
	return info(name, t.nodes[at]), nil
}

// mkdir makes a folder with its parents, and gives it the mode if it is new.
func (t *tree) mkdir(name string, mode fs.FileMode) error {
	t.mu.Lock()
	_, n, err := t.resolve(name, true)
	t.mu.Unlock()
	if err == nil && n != nil {
		if !n.isDir() {
			return fs.ErrExist
		}
		return nil
	}
	if err := t.mkdirAll(name); err != nil || mode == 0 {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at, n, err := t.find(name, true)
	if err != nil {
		return err
	}
	changed := *n
	changed.mode = fs.ModeDir | mode
	t.nodes[at] = &changed
	return nil
}

// place finds where something goes from one path to another, and makes the
// folder that it goes to.
func (t *tree) place(from, to string) (source, target string, err error) {
	t.mu.Lock()
	source, _, err = t.find(from, false)
	t.mu.Unlock()
	if err != nil {
		return "", "", err
	}
	if source == "/" || strings.HasPrefix(path.Clean(to)+"/", source+"/") && path.Clean(to) != source {
		return "", "", syscall.EINVAL
	}
	if err := t.mkdirAll(path.Dir(path.Clean(to))); err != nil {
		return "", "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	target, n, err := t.resolve(to, false)
	if err == nil && n != nil {
		err = fs.ErrExist
	}
	if err == nil && strings.HasPrefix(target, source+"/") {
		err = syscall.EINVAL
	}
	return source, target, err
}

func (t *tree) move(from, to string) error {
	source, target, err := t.place(from, to)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nodes[source] == nil {
		return fs.ErrNotExist
	}
	for _, p := range t.below(source) {
		t.nodes[target+strings.TrimPrefix(p, source)] = t.nodes[p]
		delete(t.nodes, p)
	}
	t.tell(sandbox.Change{Kind: sandbox.ChangeRenamed, Path: target, From: source, Type: t.nodes[target].fileType()})
	return nil
}

func (t *tree) copy(from, to string) error {
	source, target, err := t.place(from, to)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	names := t.below(source)
	var grow int64
	for _, p := range names {
		grow += int64(len(t.nodes[p].data))
	}
	if t.bytes+grow > t.limit || len(t.nodes)+len(names) > maxTreeNodes {
		return syscall.ENOSPC
	}
	for _, p := range names {
		if err := t.putLocked(target+strings.TrimPrefix(p, source), t.nodes[p], false); err != nil {
			return err
		}
	}
	return nil
}

// removeFile removes name, with what is below it only if that is wanted.
func (t *tree) removeFile(name string, recursive bool) error {
	t.mu.Lock()
	at, _, err := t.find(name, false)
	full := err == nil && len(t.below(at)) > 1
	t.mu.Unlock()
	switch {
	case err != nil:
		return err
	case at == "/":
		return syscall.EINVAL
	case full && !recursive:
		return syscall.ENOTEMPTY
	}
	return t.remove(name)
}

// tell tells the watches of a change, whose paths are without links.
//
// Preconditions: mu is held.
func (t *tree) tell(c sandbox.Change) {
	for _, w := range t.watches {
		w.hear(c)
	}
}

func (t *tree) watch(name string, recursive bool) (*watch, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, n, err := t.find(name, true)
	if err != nil {
		return nil, err
	}
	if len(t.watches) >= sandbox.MaxWatches {
		return nil, syscall.EMFILE
	}
	w := &watch{
		tree: t, name: path.Clean(name), at: at, file: !n.isDir(), recursive: recursive,
		ready: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	t.watches = append(t.watches, w)
	return w, nil
}

func (t *tree) unwatch(w *watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watches = slices.DeleteFunc(t.watches, func(other *watch) bool { return other == w })
}
