package image

import (
	"strings"

	"github.com/aurea-dev/aurea/internal/image/erofs"
)

// maxHops is how many symbolic links one path may follow, as in Linux.
const maxHops = 40

// tree is a root in the making. Paths are followed in it and nowhere else: the
// parent of its top is its top, and a link leads to somewhere in it.
type tree struct {
	root   *erofs.Node
	bounds Bounds

	entries int
	bytes   int64
	names   int64
	steps   int

	// touched is what the layer at hand has put in place: its whiteouts hide
	// what lies below it, not that.
	touched map[spot]struct{}
	left    []Left
	leftN   int
}

// spot is a name in a folder.
type spot struct {
	folder *erofs.Node
	name   string
}

// Left is something of an image that is not in its root.
type Left struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// maxLeft is how many of them are listed by name.
const maxLeft = 100

func newTree(b Bounds) *tree {
	return &tree{root: erofs.NewFolder(0o755), bounds: b, touched: map[spot]struct{}{}}
}

func (t *tree) leave(path, reason string) {
	if t.leftN++; len(t.left) < maxLeft {
		t.left = append(t.left, Left{strings.ToValidUTF8(path, "\uFFFD"), reason})
	}
}

// put puts a node in place of whatever stood there.
func (t *tree) put(folder *erofs.Node, name string, n *erofs.Node) {
	folder.Entries[name] = n
	t.touched[spot{folder, name}] = struct{}{}
}

// spend counts work.
func (t *tree) spend(n int) error {
	if t.steps += n; t.steps > t.bounds.Steps {
		return tooMuch("the image takes more than %d steps to put together", t.bounds.Steps)
	}
	return nil
}

// count counts an entry and the text that stays of it.
func (t *tree) count(text int) error {
	t.entries++
	t.names += int64(text)
	switch {
	case t.entries > t.bounds.Entries:
		return tooMuch("the image has more than %d entries", t.bounds.Entries)
	case t.names > t.bounds.Names:
		return tooMuch("the names in the image have more than %d bytes", t.bounds.Names)
	}
	return nil
}

// split takes a name from a layer apart. A name that climbs is refused: no
// honest tool writes one.
func split(name string) ([]string, error) {
	if len(name) > erofs.MaxTarget {
		return nil, hostile("a name has %d bytes", len(name))
	}
	if strings.ContainsRune(name, 0) {
		return nil, hostile("the name %q holds a NUL byte", name)
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
		case part == "..":
			return nil, hostile("the name %q climbs", name)
		case len(part) > erofs.MaxName:
			return nil, hostile("the name %q is too long", name)
		default:
			parts = append(parts, part)
		}
	}
	return parts, nil
}

// folder follows a path to a folder, through links, and returns nil where there
// is none. With make, missing folders are made.
func (t *tree) folder(parts []string, make bool) (*erofs.Node, error) {
	stack := []*erofs.Node{t.root}
	rest, hops := parts, 0
	for len(rest) > 0 {
		if err := t.spend(1); err != nil {
			return nil, err
		}
		part := rest[0]
		rest = rest[1:]
		here := stack[len(stack)-1]
		switch part {
		case "", ".":
			continue
		case "..": // of a link's target
			stack = stack[:max(1, len(stack)-1)]
			continue
		}
		next := here.Entries[part]
		switch {
		case next == nil && !make:
			return nil, nil
		case next == nil:
			if len(part) > erofs.MaxName {
				return nil, hostile("a link leads to %q", part)
			}
			if err := t.count(len(part)); err != nil {
				return nil, err
			}
			next = erofs.NewFolder(0o755)
			t.put(here, part, next)
			fallthrough
		case next.IsFolder():
			if stack = append(stack, next); len(stack) > t.bounds.Depth {
				return nil, tooMuch("folders lie more than %d deep", t.bounds.Depth)
			}
		case next.IsLink():
			if hops++; hops > maxHops {
				return nil, hostile("%q leads through more than %d links", strings.Join(parts, "/"), maxHops)
			}
			if strings.HasPrefix(next.Target, "/") {
				stack = stack[:1]
			}
			target := strings.Split(next.Target, "/")
			if err := t.spend(len(target) + len(rest)); err != nil {
				return nil, err
			}
			rest = append(target, rest...)
		case !make:
			return nil, nil
		default:
			return nil, hostile("%q leads through a file", strings.Join(parts, "/"))
		}
	}
	return stack[len(stack)-1], nil
}

// find follows a path to what stands there. A link at its end is followed too.
func (t *tree) find(parts []string) (folder *erofs.Node, name string, n *erofs.Node, err error) {
	for range maxHops {
		if len(parts) == 0 {
			return nil, "", t.root, nil
		}
		name = parts[len(parts)-1]
		folder, err = t.folder(parts[:len(parts)-1], false)
		if err != nil || folder == nil {
			return nil, "", nil, err
		}
		n = folder.Entries[name]
		if n == nil || !n.IsLink() {
			return folder, name, n, nil
		}
		target := strings.Split(n.Target, "/")
		if strings.HasPrefix(n.Target, "/") {
			parts = target
		} else {
			parts = append(append([]string{}, parts[:len(parts)-1]...), target...)
		}
		for len(parts) > 0 && (parts[len(parts)-1] == "" || parts[len(parts)-1] == ".") {
			parts = parts[:len(parts)-1]
		}
		if len(parts) > 0 && parts[len(parts)-1] == ".." {
			f, err := t.folder(parts, false)
			return nil, "", f, err
		}
	}
	return nil, "", nil, nil
}

// hide removes what lower layers put under a name, and leaves what this layer
// put there. It reports whether anything is left.
func (t *tree) hide(folder *erofs.Node, name string) (bool, error) {
	n := folder.Entries[name]
	if n == nil {
		return false, nil
	}
	if err := t.spend(1); err != nil {
		return false, err
	}
	_, kept := t.touched[spot{folder, name}]
	if n.IsFolder() {
		any, err := t.hideAll(n)
		if err != nil {
			return false, err
		}
		kept = kept || any
	}
	if !kept {
		delete(folder.Entries, name)
	}
	return kept, nil
}

// hideAll is hide for all that a folder holds. Its depth is bounded.
func (t *tree) hideAll(folder *erofs.Node) (bool, error) {
	left := false
	for name := range folder.Entries {
		kept, err := t.hide(folder, name)
		if err != nil {
			return false, err
		}
		left = left || kept
	}
	return left, nil
}
