package erofs

import (
	"fmt"
	"slices"
)

// Sizes of the format.
const (
	blockBits  = 12
	blockSize  = 1 << blockBits
	inodeSize  = 64
	slotSize   = 32
	direntSize = 12
	superStart = 1024
)

// place is where a node's inode stands, and how its bytes are kept.
type place struct {
	offset int64 // in the area of inodes
	links  uint32
	parent *Node // of a folder
	names  []string
	size   int64  // of the bytes behind it
	inline bool   // they follow the inode
	block  uint32 // where they are otherwise
}

func (p *place) nid() uint64 { return uint64(p.offset / slotSize) }

// layout is the plan of the area of inodes.
type layout struct {
	nodes []*Node // in the order of their inodes
	size  int64
	// outside are the nodes whose names or target have blocks of their own.
	outside []*Node
}

// plan gives every node its place: the root first, because the superblock has
// 16 bits for it, then depth first, so that what is used together is close.
func plan(root *Node) (layout, error) {
	if !root.IsFolder() {
		return layout{}, fmt.Errorf("plan the image: the root is not a folder")
	}
	var l layout
	type visit struct{ node, parent *Node }
	stack := []visit{{root, root}}
	for len(stack) > 0 {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		n := v.node
		if n.place != nil {
			if n.IsFolder() {
				return layout{}, fmt.Errorf("plan the image: a folder stands in two places")
			}
			n.place.links++
			continue
		}
		if err := l.add(n, v.parent); err != nil {
			return layout{}, err
		}
		names := n.place.names
		for _, name := range slices.Backward(names) {
			if name == "." || name == ".." {
				continue
			}
			child := n.Entries[name]
			if child.IsFolder() {
				n.place.links++
			}
			stack = append(stack, visit{child, n})
		}
	}
	return l, nil
}

func (l *layout) add(n, parent *Node) error {
	p := &place{links: 1, parent: parent}
	n.place = p
	switch n.Mode & TypeMask {
	case Regular:
		p.size, p.block = n.Data.Size, n.Data.Block
	case Link:
		if n.Target == "" || len(n.Target) > MaxTarget {
			return fmt.Errorf("plan the image: a link's target has %d bytes", len(n.Target))
		}
		p.size = int64(len(n.Target))
	case Folder:
		p.links = 2
		p.names = append(make([]string, 0, len(n.Entries)+2), ".", "..")
		for name := range n.Entries {
			if name == "" || name == "." || name == ".." || len(name) > MaxName {
				return fmt.Errorf("plan the image: %q cannot be a name", name)
			}
			p.names = append(p.names, name)
		}
		slices.Sort(p.names)
		for chunk := range direntBlocks(p.names) {
			p.size = (p.size+blockSize-1)/blockSize*blockSize + int64(chunk.size)
		}
	default:
		return fmt.Errorf("plan the image: type %#o is not written", n.Mode&TypeMask)
	}
	var behind int64
	if !n.IsRegular() {
		if p.inline = p.size <= blockSize-inodeSize; p.inline {
			behind = p.size
		} else {
			l.outside = append(l.outside, n)
		}
	}
	if l.size%blockSize+inodeSize+behind > blockSize {
		l.size = (l.size + blockSize - 1) / blockSize * blockSize
	}
	p.offset = l.size
	l.size += (inodeSize + behind + slotSize - 1) / slotSize * slotSize
	l.nodes = append(l.nodes, n)
	return nil
}

// chunk is what one block of a folder holds.
type chunk struct {
	names []string
	size  int // in bytes
}

// direntBlocks cuts a folder's sorted names into blocks. No entry crosses one.
func direntBlocks(names []string) func(yield func(chunk) bool) {
	return func(yield func(chunk) bool) {
		start, size := 0, 0
		for i, name := range names {
			if size+direntSize+len(name) > blockSize {
				if !yield(chunk{names[start:i], size}) {
					return
				}
				start, size = i, 0
			}
			size += direntSize + len(name)
		}
		yield(chunk{names[start:], size})
	}
}
