package fake

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// node is one file, folder or link. Nodes are never changed, only replaced, so
// that their bytes can be shared with output that was not read yet.
type node struct {
	mode   fs.FileMode // type and permissions
	data   []byte
	target string
	// modified is set when the node is put where it is.
	modified time.Time
}

func (n *node) isDir() bool  { return n.mode.IsDir() }
func (n *node) isLink() bool { return n.mode&fs.ModeSymlink != 0 }

// Bounds that hold when the sandbox has no disk limit.
const (
	maxTreeBytes = 1 << 30
	maxTreeNodes = 1 << 17
	maxPath      = 4096
)

// tree is the file system of one sandbox.
type tree struct {
	mu    sync.Mutex
	nodes map[string]*node // by clean, absolute path without links
	bytes int64
	limit int64
	// watches are told of changes.
	watches []*watch
}

func newTree(limit int64) *tree {
	if limit <= 0 || limit > maxTreeBytes {
		limit = maxTreeBytes
	}
	folder := &node{mode: fs.ModeDir | 0o755, modified: time.Now()}
	return &tree{limit: limit, nodes: map[string]*node{"/": folder, "/workspace": folder, "/tmp": folder}}
}

// resolve walks name from the root and returns the path without links. The last
// part need not exist, and is followed when it is a link and follow is set.
func (t *tree) resolve(name string, follow bool) (string, *node, error) {
	const maxHops = 40
	if len(name) > maxPath {
		return "", nil, syscall.ENAMETOOLONG
	}
	rest := strings.Split(path.Clean("/"+name), "/")[1:]
	at, hops := "/", 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		if part == "" {
			continue
		}
		if !t.nodes[at].isDir() {
			return "", nil, syscall.ENOTDIR
		}
		if part == ".." {
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		n := t.nodes[next]
		if n == nil {
			if len(rest) > 0 {
				return "", nil, fs.ErrNotExist
			}
			return next, nil, nil
		}
		if n.isLink() && (follow || len(rest) > 0) {
			if hops++; hops > maxHops {
				return "", nil, syscall.ELOOP
			}
			if strings.HasPrefix(n.target, "/") {
				at = "/"
			}
			rest = append(strings.Split(n.target, "/"), rest...)
			continue
		}
		at = next
	}
	return at, t.nodes[at], nil
}

// stat returns the node at name, after links.
func (t *tree) stat(name string) (*node, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, n, err := t.resolve(name, true)
	if err == nil && n == nil {
		err = fs.ErrNotExist
	}
	return n, err
}

// put sets the node at name, whose folder must exist. Folders stay folders.
func (t *tree) put(name string, n *node, follow bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.putLocked(name, n, follow)
}

func (t *tree) putLocked(name string, n *node, follow bool) error {
	at, old, err := t.resolve(name, follow)
	if err != nil {
		return err
	}
	if old != nil && old.isDir() {
		if n.isDir() {
			return nil
		}
		return syscall.EISDIR
	}
	grow := int64(len(n.data))
	if old != nil {
		grow -= int64(len(old.data))
	}
	if t.bytes+grow > t.limit || (old == nil && len(t.nodes) >= maxTreeNodes) {
		return syscall.ENOSPC
	}
	t.bytes += grow
	placed := *n
	placed.modified = time.Now()
	t.nodes[at] = &placed
	kind := sandbox.ChangeModified
	if old == nil {
		kind = sandbox.ChangeCreated
	}
	t.tell(sandbox.Change{Kind: kind, Path: at, Type: n.fileType()})
	return nil
}

// write sets or extends the file at name, following links.
func (t *tree) write(name string, data []byte, extend bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, old, err := t.resolve(name, true)
	if err != nil {
		return err
	}
	n := &node{mode: 0o644, data: data}
	if old != nil && !old.isDir() {
		n.mode = old.mode
		if extend {
			n.data = slices.Concat(old.data, data)
		}
	}
	return t.putLocked(name, n, true)
}

// mkdirAll makes the folder and its parents.
func (t *tree) mkdirAll(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(name) > maxPath {
		return syscall.ENAMETOOLONG
	}
	at := "/"
	for part := range strings.SplitSeq(path.Clean("/"+name), "/") {
		next := path.Join(at, part)
		n := t.nodes[next] // at has no links, so only the last part can be one
		if n != nil && n.isLink() {
			var err error
			if next, n, err = t.resolve(next, true); err != nil {
				return err
			}
		}
		if n == nil {
			if err := t.putLocked(next, &node{mode: fs.ModeDir | 0o755}, true); err != nil {
				return err
			}
		} else if !n.isDir() {
			return syscall.ENOTDIR
		}
		at = next
	}
	return nil
}

// remove takes away name and all below it. The root stays.
func (t *tree) remove(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, n, err := t.resolve(name, false)
	if err != nil {
		return err
	}
	if n == nil {
		return fs.ErrNotExist
	}
	if at == "/" {
		return errors.New("the root cannot be removed")
	}
	for _, p := range slices.Backward(t.below(at)) {
		gone := t.nodes[p]
		t.bytes -= int64(len(gone.data))
		delete(t.nodes, p)
		t.tell(sandbox.Change{Kind: sandbox.ChangeDeleted, Path: p, Type: gone.fileType()})
	}
	return nil
}

// below lists at and everything under it, in order of their names.
func (t *tree) below(at string) []string {
	prefix := strings.TrimSuffix(at, "/") + "/"
	var names []string
	for p := range t.nodes {
		if p == at || strings.HasPrefix(p, prefix) {
			names = append(names, p)
		}
	}
	slices.Sort(names)
	return names
}
