package sandbox

import (
	"context"
	"io"
	"net"
	"path"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// FileType is what stands at a path.
type FileType string

// The types. A FIFO, a socket and a device are other.
const (
	TypeFile  FileType = "file"
	TypeDir   FileType = "dir"
	TypeLink  FileType = "link"
	TypeOther FileType = "other"
)

// FileInfo is what is known of a file without reading it. All of it comes from
// inside the sandbox.
type FileInfo struct {
	Path    string    `json:"path"` // absolute, in the sandbox
	Name    string    `json:"name"`
	Type    FileType  `json:"type"`
	Size    int64     `json:"size"`
	Mode    uint32    `json:"mode"` // permission bits
	ModTime time.Time `json:"modified_at"`
	Target  string    `json:"target,omitempty"` // of a link, as it stands there
}

// The bounds of files. What goes beyond them is a fault of kind Invalid, but
// for a listing, which says that there is more.
const (
	MaxPath     = 4095    // bytes of a path
	MaxListed   = 10_000  // entries of a listing
	MaxListing  = 4 << 20 // bytes of the names in a listing
	MaxDepth    = 256     // folders below each other that are listed, copied or removed
	MaxWatches  = 64      // watches of one sandbox
	MaxWatched  = 8192    // folders of one watch
	MaxRelays   = 256     // connections into one sandbox
	MaxFileMode = 0o777   // modes hold permissions only
)

// The codes of the faults of a Filer and a Dialer that the kind alone does not
// tell.
const (
	CodeExists     = "exists"      // Conflict: something stands where something is to be made
	CodeNotEmpty   = "not_empty"   // Conflict: the folder has entries
	CodeIsDir      = "is_dir"      // Conflict: a folder where a file is meant
	CodeNotDir     = "not_dir"     // Conflict: a file where a folder is meant
	CodeDiskFull   = "disk_full"   // Exhausted: the sandbox's disk is full
	CodeNotFile    = "not_file"    // Invalid: a FIFO, a socket or a device, or a file of the kernel's
	CodePortClosed = "port_closed" // Unavailable: nobody listens
	CodeOldGuest   = "guest_old"   // Unavailable: the sandbox was made by a release that could not do this
)

// Filer is implemented by a Box whose files can be reached one by one; its
// driver has Capabilities.Files.
//
// Rights. Everything is done with the rights of the sandbox's user and no more,
// and what is made belongs to that user. What that user may not do is a fault
// of kind Denied. A path is absolute, holds no NUL byte and is at most MaxPath
// bytes long, else it is Invalid; "." and ".." are taken out of it before it is
// looked at, and links mean what they mean in the sandbox, and never lead out
// of it. What does not exist is a fault of kind NotFound, a path below a file a
// Conflict with CodeNotDir, a full disk Exhausted with CodeDiskFull.
//
// Waiting. No call waits for anything that code in the sandbox could hold back:
// a FIFO or a device is never opened to wait. A ctx bounds the call that takes
// it; a call whose ctx ends has done its work whole or, where that is said,
// not at all.
//
// Trust. What comes back was said in the sandbox: names may hold anything but
// a slash and a NUL byte.
type Filer interface {
	// Stat looks at the path itself, also where it is a link.
	Stat(ctx context.Context, path string) (FileInfo, error)
	// List lists what is below a folder, or below the folder that a link means,
	// sorted by the bytes of the path. The folder itself is not listed, and
	// links below it are not followed. Depth 1 lists the folder's own entries;
	// less counts as 1, more than MaxDepth as that. At most most entries are
	// listed, and no more than MaxListed and MaxListing allow; 0 or less counts
	// as MaxListed. more says that there were others. A folder below that may
	// not be read is listed without what is in it. A path that is no folder is
	// a Conflict with CodeNotDir.
	List(ctx context.Context, path string, depth, most int) (found []FileInfo, more bool, err error)
	// ReadFile writes the file's bytes from offset on into w, length of them or,
	// if that is negative, to the end; less where the file ends before. It
	// follows links inside the sandbox and reads regular files only: a folder is
	// a Conflict with CodeIsDir, anything else Invalid with CodeNotFile, also
	// what the kernel makes up below /proc and /sys. The info is that of the
	// file when it was opened, under the path that was asked for. A file that
	// changes meanwhile gives bytes of before and after.
	ReadFile(ctx context.Context, path string, offset, length int64, w io.Writer) (FileInfo, error)
	// WriteFile puts a file there, whole or not at all: who reads sees the old
	// file or the new one, and after an error the old one stands. It makes
	// parents, and follows a link, so that the link stays. A body that fails
	// with an error changes nothing. The file gets the mode; mode 0 keeps that
	// of the file it replaces, else it is 0644. A folder is a Conflict with
	// CodeIsDir, a FIFO or a device Invalid with CodeNotFile.
	WriteFile(ctx context.Context, path string, mode uint32, body io.Reader) (FileInfo, error)
	// Mkdir makes a folder and its parents. One that is there is fine and keeps
	// its mode; anything else that is there is a Conflict with CodeExists. Mode
	// 0 is 0755.
	Mkdir(ctx context.Context, path string, mode uint32) error
	// Move gives a file, a link or a tree another path, whose parents are made.
	// A path that is taken is a Conflict with CodeExists: nothing is replaced. A
	// tree cannot be moved below itself: that is Invalid.
	Move(ctx context.Context, from, to string) error
	// Copy copies a file, a link as a link, or a tree, whole or not at all, with
	// the modes. Parents, a path that is taken, and a copy below itself are as
	// with Move. Special files in a tree are left out; one by itself is Invalid
	// with CodeNotFile.
	Copy(ctx context.Context, from, to string) error
	// Remove removes a file, a link (not what it means), or an empty folder, and
	// with recursive a whole tree. A folder with entries is otherwise a Conflict
	// with CodeNotEmpty. The root stays: removing it is Invalid.
	Remove(ctx context.Context, path string, recursive bool) error
	// Watch tells of changes to a file, or to the entries of a folder, and with
	// recursive of all below it, also in folders that come later. Changes that
	// begin after Watch has returned are told. ctx bounds the call only: the
	// watch goes on until Close. More than MaxWatches are Exhausted.
	Watch(ctx context.Context, path string, recursive bool) (Watch, error)
}

// Watch is a stream of changes. Next may be called by one goroutine at a time,
// Close from any, more than once.
type Watch interface {
	// Next waits for a change. It returns io.EOF after Close, and when the
	// sandbox has ended.
	Next(ctx context.Context) (Change, error)
	Close() error
}

// The kinds of Change. Overflow says that some were missed, because they came
// faster than they were taken or because there are more than MaxWatched folders:
// what the caller believes to know must be looked at anew.
const (
	ChangeCreated  = "created"
	ChangeModified = "modified"
	ChangeDeleted  = "deleted"
	ChangeRenamed  = "renamed"
	ChangeOverflow = "overflow"
)

// Change is one thing that happened to a file. Several changes of one file's
// content in a short time may be told as one. What comes from outside what is
// watched is created, what leaves it deleted.
type Change struct {
	Kind string   `json:"kind"` // "created", "modified", "deleted", "renamed", "overflow"
	Path string   `json:"path"`
	From string   `json:"from,omitempty"` // renamed: what it was called
	Type FileType `json:"type,omitempty"` // where it is known
}

// Dialer is implemented by a Box whose ports can be reached; its driver has
// Capabilities.Ports. The sandbox's network stays as it is: the guest connects
// inside, and the bytes go over the sandbox's own channel.
type Dialer interface {
	// Dial connects to a TCP port at 127.0.0.1 in the sandbox, else at ::1. Where
	// nobody listens it is a fault of kind Unavailable with CodePortClosed; more
	// than MaxRelays connections are Exhausted. ctx bounds the call only. The
	// connection keeps deadlines, can be closed in one direction by CloseWrite,
	// and ends when the sandbox does. A reader that is slow holds up its own
	// connection and no other.
	Dial(ctx context.Context, port uint16) (net.Conn, error)
}

// DiskMeter is implemented by a Box that can say how much was written in it.
type DiskMeter interface {
	// Disk says how many bytes the files take that were written since the
	// sandbox was made and that are still there, as its file systems count them.
	// It costs the same however many they are. It was said in the sandbox.
	Disk(ctx context.Context) (int64, error)
}

// Disk says how many bytes of files were written and are still there, or -1 where
// the driver cannot say.
func (s *Sandbox) Disk(ctx context.Context) (int64, error) {
	if err := s.demand("measure the disk"); err != nil {
		return -1, err
	}
	b, ok := s.box.(DiskMeter)
	if !ok {
		return -1, nil
	}
	n, err := b.Disk(ctx)
	if err != nil {
		return -1, err
	}
	return n, nil
}

// CheckPath returns a fault of kind Invalid unless a Filer could take the path.
func CheckPath(field, name string) error {
	switch {
	case !path.IsAbs(name):
		return fault.Field(field, "%q is not an absolute path in the sandbox", clip(name))
	case len(name) > MaxPath:
		return fault.Field(field, "a path of %d bytes is too long; at most %d", len(name), MaxPath)
	case strings.ContainsRune(name, 0):
		return fault.Field(field, "a path cannot hold a NUL byte")
	}
	return nil
}

// CheckMode returns a fault of kind Invalid unless the mode is one of
// permissions only.
func CheckMode(mode uint32) error {
	if mode > MaxFileMode {
		return fault.Field("mode", "%#o holds more than permissions; at most %#o", mode, MaxFileMode)
	}
	return nil
}

// Files returns the sandbox's files. A driver that cannot reach them one by one
// is a fault of kind Invalid.
func (s *Sandbox) Files() (Filer, error) {
	if err := s.demand("reach files"); err != nil {
		return nil, err
	}
	f, ok := s.box.(Filer)
	if !ok || !s.opts.Driver.Capabilities().Files {
		return nil, fault.New(fault.Invalid, "the driver %s cannot reach files one by one; put and get archives", s.opts.Driver.Name()).WithCode("files_unsupported")
	}
	return f, nil
}

// Dial connects to a TCP port in the sandbox, as Dialer does. A driver that
// cannot is a fault of kind Invalid.
func (s *Sandbox) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	if err := s.demand("reach a port"); err != nil {
		return nil, err
	}
	d, ok := s.box.(Dialer)
	if !ok || !s.opts.Driver.Capabilities().Ports {
		return nil, fault.New(fault.Invalid, "the driver %s cannot reach ports of a sandbox", s.opts.Driver.Name()).WithCode("ports_unsupported")
	}
	return d.Dial(ctx, port)
}
