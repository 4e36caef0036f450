package erofs

import "golang.org/x/sys/unix"

// The types of nodes, as in stat.
const (
	TypeMask = unix.S_IFMT
	Regular  = unix.S_IFREG
	Folder   = unix.S_IFDIR
	Link     = unix.S_IFLNK
)

// Limits of the format, and of what Linux can name.
const (
	MaxName   = 255
	MaxTarget = 4095
)

// Data is where the bytes of a file are in the image.
type Data struct {
	Block uint32
	Size  int64
}

// Node is a file, a folder or a symbolic link. The same file may stand in
// several folders, or under several names: then these are hard links.
type Node struct {
	// Mode has the type and the permissions.
	Mode     uint16
	UID, GID uint32
	// Mtime is in seconds, with the nanoseconds beside it.
	Mtime   int64
	MtimeNs uint32
	// Data is what a regular file holds.
	Data Data
	// Target is where a symbolic link leads.
	Target string
	// Entries is what a folder holds.
	Entries map[string]*Node

	place *place
}

// NewFolder returns an empty folder.
func NewFolder(perm uint16) *Node {
	return &Node{Mode: Folder | perm, Entries: map[string]*Node{}}
}

// IsFolder reports whether the node is a folder.
func (n *Node) IsFolder() bool { return n.Mode&TypeMask == Folder }

// IsRegular reports whether the node is a regular file.
func (n *Node) IsRegular() bool { return n.Mode&TypeMask == Regular }

// IsLink reports whether the node is a symbolic link.
func (n *Node) IsLink() bool { return n.Mode&TypeMask == Link }
