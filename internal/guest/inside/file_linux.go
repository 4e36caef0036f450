package inside

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// task is one request about files: what is asked, and the streams of its
// channel.
type task struct {
	open wire.Open
	in   io.Reader
	out  [2]io.Writer
	// stopped reports that nobody waits for it any more.
	stopped func() bool
}

// file implements system. All of it is done with the rights of the sandbox's
// user, so that no path and no link reaches more than code can.
func (l *linux) file(t task) error {
	u, err := l.users.find(DefaultUser)
	if err != nil {
		return err
	}
	return asUser(u, func() error { return t.do() })
}

func (t task) do() error {
	name, f := t.open.Path, t.open.File
	switch t.open.Kind { //nolint:exhaustive // the others are not about files
	case wire.KindStat:
		return t.stat(name)
	case wire.KindList:
		return t.list(name)
	case wire.KindRead:
		return t.read(name)
	case wire.KindWrite:
		return t.write(name)
	case wire.KindMkdir:
		return makeFolder(name, fs.FileMode(f.Mode))
	case wire.KindMove:
		return t.move(name, f.To)
	case wire.KindCopy:
		return t.copy(name, f.To)
	case wire.KindRemove:
		return remove(name, f.Recursive)
	case wire.KindDisk:
		return t.disk()
	}
	return invalid("nobody knows how to do this to files")
}

// entryOf is what is known of a file, under a name relative to what was asked.
func entryOf(name string, info fs.FileInfo) wire.Entry {
	e := wire.Entry{
		Name: name, Type: typeOf(info.Mode()), Mode: uint32(info.Mode().Perm()),
		Size: info.Size(), ModTime: info.ModTime(),
	}
	return e
}

func typeOf(mode fs.FileMode) wire.FileType {
	switch {
	case mode.IsRegular():
		return wire.FileRegular
	case mode.IsDir():
		return wire.FileFolder
	case mode&fs.ModeSymlink != 0:
		return wire.FileLink
	}
	return wire.FileOther
}

// lookAt looks at a path itself.
func lookAt(at, name string) (wire.Entry, error) {
	info, err := os.Lstat(at)
	if err != nil {
		return wire.Entry{}, err
	}
	e := entryOf(name, info)
	if e.Type == wire.FileLink {
		if e.Target, err = os.Readlink(at); err != nil {
			return wire.Entry{}, err
		}
	}
	return e, nil
}

func (t task) stat(name string) error {
	e, err := lookAt(name, "")
	if err != nil {
		return err
	}
	return t.say(0, e)
}

// say puts an entry on a stream.
func (t task) say(stream int, e wire.Entry) error {
	_, err := t.out[stream].Write(e.Append(nil))
	return err
}

func notFile(name string) error {
	return &refusal{status: wire.StatusNotFile, reason: "this is no file to read or write: " + name}
}

// ofKernel reports whether a path lies in one of the kernel's own trees. What
// looks like a file there is something else, and some of it is the guest's.
func ofKernel(where *unix.Statfs_t) bool {
	switch where.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.DEVPTS_SUPER_MAGIC:
		return true
	}
	return false
}

// openFile opens a regular file to be read. Nothing else is opened, unless it
// takes the file's place in this moment; then it does not block, and is closed.
func openFile(name string, flags int) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, nil, err
	}
	if err := checkRegular(name, info); err != nil {
		return nil, nil, err
	}
	var where unix.Statfs_t
	if err := unix.Statfs(name, &where); err != nil {
		return nil, nil, err
	}
	if ofKernel(&where) {
		return nil, nil, notFile(name)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|flags, 0)
	if err != nil {
		return nil, nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = checkRegular(name, info)
	}
	if err == nil {
		if err = unix.Fstatfs(int(f.Fd()), &where); err == nil && ofKernel(&where) {
			err = notFile(name)
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

func checkRegular(name string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return &fs.PathError{Op: "open", Path: name, Err: unix.EISDIR}
	case !info.Mode().IsRegular():
		return notFile(name)
	}
	return nil
}

func (t task) read(name string) error {
	f, info, err := openFile(name, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := t.say(1, entryOf("", info)); err != nil {
		return err
	}
	if _, err := f.Seek(t.open.File.Offset, io.SeekStart); err != nil {
		return err
	}
	var from io.Reader = f
	if t.open.File.Length >= 0 {
		from = io.LimitReader(f, t.open.File.Length)
	}
	_, err = io.CopyBuffer(onlyWriter{t.out[0]}, onlyReader{from}, make([]byte, chunk))
	return err
}

// chunk is how much is read and written at once: each costs a way through the
// sandbox's kernel.
const chunk = 128 << 10

// The names of what is not there yet begin with one of these, by which a watch
// knows it: something new, or something in the place of another.
const (
	newPrefix     = ".aurea-new-"
	replacePrefix = ".aurea-replace-"
)

func hidden(name string) bool {
	return strings.HasPrefix(name, newPrefix) || strings.HasPrefix(name, replacePrefix)
}

// besides returns a name of its own beside a path.
func besides(name, prefix string) string {
	var id [12]byte
	_, _ = rand.Read(id[:]) // never fails
	return path.Join(parent(name), prefix+hex.EncodeToString(id[:]))
}

// parent is the folder of a path, which may hold links: nothing of it is taken
// out.
func parent(name string) string {
	i := strings.LastIndexByte(name, '/')
	if i <= 0 {
		return "/"
	}
	return name[:i]
}

// target follows the links at the end of a path to where a file is, or would
// be. What is there is nil if nothing is.
func target(name string) (string, fs.FileInfo, error) {
	const most = 40
	for range most {
		info, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return name, nil, nil
		}
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return name, info, err
		}
		to, err := os.Readlink(name)
		if err != nil {
			return "", nil, err
		}
		if !path.IsAbs(to) {
			to = strings.TrimSuffix(parent(name), "/") + "/" + to
		}
		name = to
	}
	return "", nil, &fs.PathError{Op: "follow", Path: name, Err: unix.ELOOP}
}

func (t task) write(name string) error {
	name, old, err := target(name)
	if err != nil {
		return err
	}
	mode, prefix := fs.FileMode(t.open.File.Mode), newPrefix
	if old != nil {
		if err := checkRegular(name, old); err != nil {
			return err
		}
		prefix = replacePrefix
		if mode == 0 {
			mode = old.Mode().Perm()
		}
	}
	if mode == 0 {
		mode = 0o644
	}
	if err := os.MkdirAll(parent(name), 0o755); err != nil {
		return err
	}
	draft := besides(name, prefix)
	info, err := t.draft(draft, mode)
	if err == nil {
		err = os.Rename(draft, name)
	}
	if err != nil {
		_ = os.Remove(draft)
		return err
	}
	return t.say(0, entryOf("", info))
}

// draft writes the input into a new file.
func (t task) draft(name string, mode fs.FileMode) (info fs.FileInfo, err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = io.CopyBuffer(onlyWriter{f}, onlyReader{t.in}, make([]byte, chunk))
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		info, err = f.Stat()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return info, err
}

func makeFolder(name string, mode fs.FileMode) error {
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: "make", Path: name, Err: unix.EEXIST}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.MkdirAll(parent(name), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(name, 0o755); err != nil {
		return err
	}
	if mode == 0 {
		return nil
	}
	return os.Chmod(name, mode)
}

func remove(name string, recursive bool) error {
	if path.Clean(name) == "/" {
		return invalid("the root cannot be removed")
	}
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() || !recursive {
		return os.Remove(name)
	}
	// Before what is in it is gone.
	if err := mayChange(parent(name)); err != nil {
		return err
	}
	return os.RemoveAll(name)
}

// mayChange says why entries of a folder cannot be made or removed.
func mayChange(dir string) error {
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return &fs.PathError{Op: "change", Path: dir, Err: err}
	}
	return nil
}

// fileOutcome puts an error about files into the words of the protocol.
func fileOutcome(err error) wire.Outcome {
	o := outcome(err)
	var refused *refusal
	if err == nil || errors.As(err, &refused) {
		return o
	}
	for status, meant := range map[wire.Status][]error{
		wire.StatusNotEmpty:  {unix.ENOTEMPTY},
		wire.StatusExists:    {unix.EEXIST},
		wire.StatusIsDir:     {unix.EISDIR},
		wire.StatusNotDir:    {unix.ENOTDIR},
		wire.StatusDiskFull:  {unix.ENOSPC, unix.EDQUOT},
		wire.StatusInvalid:   {unix.ENAMETOOLONG, unix.EINVAL, unix.ELOOP},
		wire.StatusDenied:    {unix.EROFS, unix.EACCES, unix.EPERM, unix.EBUSY},
		wire.StatusExhausted: {unix.EMFILE, unix.ENFILE, unix.ENOMEM},
	} {
		for _, m := range meant {
			if errors.Is(err, m) {
				o.Status = status
			}
		}
	}
	return o
}
