package inside

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// asUser runs f on a thread of its own that sees files with the rights of the
// user and no more. The real and saved ids stay the guest's, so that the user
// cannot signal or trace the thread. The thread is never used again: it ends
// with its goroutine, because that never unlocks it.
func asUser(u user, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := becomeUser(u); err != nil {
			result <- fmt.Errorf("take on the user's rights: %w", err)
			return
		}
		result <- f()
	}()
	return <-result
}

// becomeUser changes this thread alone, which the functions of package syscall
// would not.
func becomeUser(u user) error {
	const unchanged = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, unchanged, uintptr(u.gid), unchanged); errno != 0 {
		return errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, unchanged, uintptr(u.uid), unchanged); errno != 0 {
		return errno
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}

// put implements system: it unpacks as the sandbox's user, so that neither the
// archive nor a link that code has laid out can reach more than code can.
func (l *linux) put(dir string, from io.Reader) error {
	u, err := l.users.find(DefaultUser)
	if err != nil {
		return err
	}
	return asUser(u, func() error {
		root, err := makeRoot(dir)
		if err != nil {
			return err
		}
		defer func() { _ = root.Close() }()
		return unpack(root, from, func(*os.Root, *tar.Header) error { return nil })
	})
}

// lock implements system: it unpacks with the guest's rights, and what it makes
// is the guest's, so that no command can change or remove it. What the archive
// gives to somebody (a number above 0) is the sandbox's user's.
//
// Preconditions: no command of a stranger's runs yet, whose links could lead
// the guest somewhere else below the folder.
func (l *linux) lock(dir string, from io.Reader) error {
	root, err := makeRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := errors.Join(os.Chown(dir, os.Getuid(), os.Getgid()), os.Chmod(dir, 0o755)); err != nil {
		return fmt.Errorf("lock the folder: %w", err)
	}
	return unpack(root, from, func(root *os.Root, header *tar.Header) error {
		if header.Uid == 0 {
			return nil
		}
		u, err := l.users.find(DefaultUser)
		if err != nil {
			return err
		}
		return root.Lchown(path.Clean(header.Name), int(u.uid), int(u.gid))
	})
}

// DefaultUser is whom commands run as and files belong to unless a worker says
// otherwise.
const DefaultUser = "sandbox"

// makeRoot opens a folder, and makes it where it is not there.
func makeRoot(dir string) (*os.Root, error) {
	root, err := openRoot(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return root, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder: %w", err)
	}
	return openRoot(dir)
}

// openRoot opens a folder to work below. The kernel's own trees are refused:
// what looks like a file there is something else.
func openRoot(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the folder: %w", err)
	}
	var where unix.Statfs_t
	if err := unix.Statfs(dir, &where); err == nil {
		switch where.Type {
		case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP2_SUPER_MAGIC:
			_ = root.Close()
			return nil, invalid("this folder holds no files: " + dir)
		}
	}
	return root, nil
}

// unpack unpacks a tar stream below root, and has each entry handed over once
// it is there.
func unpack(root *os.Root, from io.Reader, handOver func(*os.Root, *tar.Header) error) error {
	archive := tar.NewReader(from)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			// Behind the archive's end may come padding.
			_, err := io.Copy(io.Discard, from)
			return err
		}
		if err != nil {
			return unpackError(err)
		}
		if err := unpackEntry(root, header, archive); err != nil {
			return unpackError(err)
		}
		if err := handOver(root, header); err != nil {
			return unpackError(err)
		}
	}
}

// unpackError tells a broken archive from a broken stream.
func unpackError(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrInsecurePath) || errors.Is(err, io.ErrUnexpectedEOF) {
		return invalid("the archive is broken: " + err.Error())
	}
	var refused *refusal
	if errors.As(err, &refused) {
		return err
	}
	if o := fileOutcome(err); o.Status != wire.StatusInternal {
		return &refusal{status: o.Status, reason: o.Message}
	}
	// What os.Root refuses by itself has no number of the kernel's.
	pathErr, linkErr := (*fs.PathError)(nil), (*os.LinkError)(nil)
	if errno := syscall.Errno(0); !errors.As(err, &errno) && (errors.As(err, &pathErr) || errors.As(err, &linkErr)) {
		return invalid("the archive leads out of the folder: " + err.Error())
	}
	return err
}

func unpackEntry(root *os.Root, header *tar.Header, content io.Reader) error {
	name := path.Clean(header.Name)
	if name == "." {
		return nil
	}
	if path.IsAbs(name) || name == ".." || strings.HasPrefix(name, "../") {
		return invalid("the archive names a path outside the folder: " + header.Name)
	}
	if parent := path.Dir(name); parent != "." {
		if err := root.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	mode := header.FileInfo().Mode().Perm()
	switch header.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		return root.Chmod(name, mode)
	case tar.TypeReg:
		return unpackFile(root, name, mode, header, content)
	case tar.TypeSymlink:
		if err := clearPlace(root, name); err != nil {
			return err
		}
		return root.Symlink(header.Linkname, name)
	case tar.TypeLink:
		if err := clearPlace(root, name); err != nil {
			return err
		}
		return root.Link(path.Clean(header.Linkname), name)
	case tar.TypeXGlobalHeader:
		return nil
	}
	return invalid("the archive holds something other than files, folders and links: " + header.Name)
}

// masked are the rights that nothing gets as it is made.
const masked fs.FileMode = 0o022

func unpackFile(root *os.Root, name string, mode fs.FileMode, header *tar.Header, content io.Reader) error {
	// A file never makes anybody wait: said at once, Go need not find out, which
	// takes it four calls.
	const how = os.O_WRONLY | os.O_CREATE | os.O_EXCL | unix.O_NONBLOCK
	place := name
	f, err := root.OpenFile(place, how, mode&^masked)
	if errors.Is(err, fs.ErrExist) && !isFolder(root, name) {
		// What is there stays until the new one is whole.
		place = path.Join(path.Dir(name), path.Base(besides(name, replacePrefix)))
		f, err = root.OpenFile(place, how, mode&^masked)
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err == nil && mode&masked != 0 {
		err = f.Chmod(mode)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil && header.ModTime.Unix() != 0 { // that is what a tar has for none
		err = root.Chtimes(place, header.ModTime, header.ModTime)
	}
	if err == nil && place != name {
		err = root.Rename(place, name)
	}
	if err != nil {
		_ = root.Remove(place) // half of a file would look like a whole one
	}
	return err
}

func isFolder(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	return err == nil && info.IsDir()
}

// clearPlace removes what is in the way of a file, if it is not a folder.
func clearPlace(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil || info.IsDir() {
		return nil // making it will say what is wrong
	}
	return root.Remove(name)
}

// get implements system. It reads with the guest's rights, so that a command
// cannot hide a file from the record by taking its own rights away.
func (l *linux) get(name string, to io.Writer) error {
	archive := tar.NewWriter(to)
	if empty(name) {
		return archive.Close()
	}
	info, err := os.Stat(name)
	if err != nil {
		return fmt.Errorf("find the path: %w", err)
	}
	if info.IsDir() {
		root, err := openRoot(name)
		if err != nil {
			return err
		}
		defer func() { _ = root.Close() }()
		if err := pack(root, ".", archive, 0); err != nil {
			return err
		}
		return archive.Close()
	}
	root, err := openRoot(path.Dir(name))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	// The path may be a link out of its folder: then what it means is packed,
	// under the name that was asked for.
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open the file: %w", err)
	}
	defer func() { _ = f.Close() }()
	if info, err = f.Stat(); err != nil {
		return fmt.Errorf("look at the file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return invalid("neither a file nor a folder: " + name)
	}
	// A link may lead into the kernel's trees, where the guest sees what is its own.
	var where unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &where); err != nil || ofKernel(&where) {
		return notFile(name)
	}
	if err := packFile(f, info, path.Base(name), archive); err != nil {
		return err
	}
	return archive.Close()
}

// empty reports whether there is a folder with nothing in it, which is what most
// programs leave.
func empty(name string) bool {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	var b [512]byte
	n, err := unix.ReadDirent(fd, b[:]) // in one trip: the folder itself and its parent fit
	if err != nil {
		return false
	}
	_, _, names := unix.ParseDirent(b[:n], 1, nil)
	return len(names) == 0
}

// maxDepth bounds how deep a tree is packed.
const maxDepth = 256

// pack packs the folder dir of root, without itself.
func pack(root *os.Root, dir string, archive *tar.Writer, depth int) error {
	if depth > maxDepth {
		return invalid("the tree is too deep")
	}
	f, err := root.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for {
		entries, err := f.ReadDir(256)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, entry := range entries {
			err := packEntry(root, path.Join(dir, entry.Name()), archive, depth)
			if errors.Is(err, fs.ErrNotExist) {
				continue // gone while we looked: the sandbox is alive
			}
			if err != nil {
				return err
			}
		}
	}
}

func packEntry(root *os.Root, name string, archive *tar.Writer, depth int) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		if err := packHeader(info, name+"/", "", archive); err != nil {
			return err
		}
		return pack(root, name, archive, depth+1)
	case mode.IsRegular():
		f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if info, err = f.Stat(); err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return nil // changed under our hands into what has no content
		}
		return packFile(f, info, name, archive)
	case mode&fs.ModeSymlink != 0:
		target, err := root.Readlink(name)
		if err != nil {
			return err
		}
		return packHeader(info, name, target, archive)
	case mode&fs.ModeSocket != 0:
		return nil // a tar has no word for it
	}
	return packHeader(info, name, "", archive)
}

func packHeader(info fs.FileInfo, name, target string, archive *tar.Writer) error {
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	header.Name = name
	header.Uname, header.Gname = "", ""
	// This format takes any name, also one that is not text.
	header.Format = tar.FormatGNU
	return archive.WriteHeader(header)
}

// packFile packs the size that the file has now: what is written to it
// meanwhile is left out, what is cut off becomes zeros.
func packFile(f *os.File, info fs.FileInfo, name string, archive *tar.Writer) error {
	if err := packHeader(info, name, "", archive); err != nil {
		return err
	}
	n, err := io.CopyN(archive, f, info.Size())
	if errors.Is(err, io.EOF) {
		_, err = io.CopyN(archive, zeros{}, info.Size()-n)
	}
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
