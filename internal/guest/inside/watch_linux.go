package inside

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

const (
	// maxWatched bounds the folders of one watch.
	maxWatched = 8192
	// gatherTime is how long changes are gathered before they are told, so
	// that the halves of a renaming come together and a file that is written
	// all the time is told of now and then.
	gatherTime = 10 * time.Millisecond
	// gatherSize is how many bytes of them at most.
	gatherSize = 64 << 10
)

// inotify watches files by the kernel's own means.
type inotify struct {
	file      *os.File
	user      user
	root      string
	only      string // the one name that counts, when a file is watched
	recursive bool

	folders map[int32]string // what is watched, by the kernel's number, relative to root
	// told has what a folder that has just come was seen to hold: what the
	// kernel says of it besides was said already.
	told, toldBefore map[string]bool
	full             bool // more folders than may be

	mu    sync.Mutex
	ended bool
}

// watch implements system. Folders are watched with the rights of the sandbox's
// user.
func (l *linux) watch(name string, recursive bool) (watcher, error) {
	u, err := l.users.find(DefaultUser)
	if err != nil {
		return nil, err
	}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	w := &inotify{
		file: os.NewFile(uintptr(fd), "inotify"), user: u, root: name, recursive: recursive,
		folders: map[int32]string{}, told: map[string]bool{},
	}
	if err := asUser(u, w.begin); err != nil {
		_ = w.file.Close()
		return nil, err
	}
	return w, nil
}

// begin watches what is there now.
func (w *inotify) begin() error {
	info, err := os.Stat(w.root)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		// Through its folder, so that another file in its place is seen.
		w.only, w.root, w.recursive = path.Base(w.root), parent(w.root), false
	}
	if err := w.add(""); err != nil {
		return err
	}
	return w.addBelow("", nil)
}

const (
	changeMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_MOVED_FROM | unix.IN_MOVED_TO
	folderMask = changeMask | unix.IN_DELETE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK
)

// add watches one folder.
func (w *inotify) add(rel string) error {
	if len(w.folders) >= maxWatched {
		w.full = true
		return unix.ENOSPC
	}
	mask := uint32(folderMask)
	if rel != "" {
		mask |= unix.IN_DONT_FOLLOW
	}
	n, err := w.control(func(fd int) (int, error) { return unix.InotifyAddWatch(fd, path.Join(w.root, rel), mask) })
	if err != nil {
		w.full = w.full || errors.Is(err, unix.ENOSPC)
		return &fs.PathError{Op: "watch", Path: path.Join(w.root, rel), Err: err}
	}
	w.folders[int32(n)] = rel
	return nil
}

func (w *inotify) control(f func(fd int) (int, error)) (n int, err error) {
	conn, err := w.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	if outer := conn.Control(func(fd uintptr) { n, err = f(int(fd)) }); outer != nil {
		return 0, outer
	}
	return n, err
}

// addBelow watches the folders below one, and tells of all that is in them
// where something is to be told. What cannot be seen is left out.
func (w *inotify) addBelow(rel string, tell func(wire.Change) error) error {
	if !w.recursive || strings.Count(rel, "/") > maxDepth {
		return nil
	}
	f, err := os.OpenFile(path.Join(w.root, rel), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil //nolint:nilerr // gone, or not to be read
	}
	defer func() { _ = f.Close() }()
	for {
		entries, err := f.ReadDir(256)
		for _, e := range entries {
			if hidden(e.Name()) {
				continue
			}
			if err := w.addEntry(path.Join(rel, e.Name()), typeOf(e.Type()), tell); err != nil {
				return err
			}
		}
		if err != nil {
			return nil //nolint:nilerr // the end, or as above
		}
	}
}

func (w *inotify) addEntry(rel string, t wire.FileType, tell func(wire.Change) error) error {
	if tell != nil {
		w.told[rel] = true
		if err := tell(wire.Change{Kind: wire.ChangeCreated, Type: t, Name: rel}); err != nil {
			return err
		}
	}
	if t != wire.FileFolder || w.add(rel) != nil {
		return nil
	}
	return w.addBelow(rel, tell)
}

// drop forgets the folders at and below a path.
func (w *inotify) drop(rel string) {
	for n, at := range w.folders {
		if at == rel || strings.HasPrefix(at, rel+"/") {
			delete(w.folders, n)
			_, _ = w.control(func(fd int) (int, error) { return unix.InotifyRmWatch(fd, uint32(n)) })
		}
	}
}

// renamed gives the folders at and below a path another.
func (w *inotify) renamed(from, to string) {
	for n, at := range w.folders {
		if at == from || strings.HasPrefix(at, from+"/") {
			w.folders[n] = to + strings.TrimPrefix(at, from)
		}
	}
}

// stop implements watcher.
func (w *inotify) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	_ = w.file.SetReadDeadline(time.Unix(1, 0))
}

// until sets when the next read gives up. It is false when all of it is over.
func (w *inotify) until(t time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.ended && w.file.SetReadDeadline(t) == nil
}

// run implements watcher.
func (w *inotify) run(to io.Writer) error {
	defer func() { _ = w.file.Close() }()
	return asUser(w.user, func() error {
		for {
			events, err := w.gather()
			if err != nil {
				return err
			}
			w.toldBefore, w.told = w.told, map[string]bool{}
			b := batchOf(events)
			b.w, b.to = w, to
			if err := b.tellAll(); err != nil {
				return err
			}
		}
	})
}

// gather waits for changes and returns those of a short while.
func (w *inotify) gather() ([]event, error) {
	b := make([]byte, gatherSize)
	size, wait := 0, time.Time{}
	for size < gatherSize/2 && w.until(wait) {
		n, err := w.file.Read(b[size:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
		if size == 0 {
			wait = time.Now().Add(gatherTime)
		}
		size += n
	}
	if size == 0 {
		return nil, errAborted
	}
	return eventsOf(b[:size]), nil
}

// event is one of the kernel's.
type event struct {
	folder       int32
	mask, cookie uint32
	name         string
}

// eventsOf takes apart what the kernel wrote.
func eventsOf(b []byte) []event {
	const head = 16
	var events []event
	for len(b) >= head {
		e := event{
			folder: int32(binary.NativeEndian.Uint32(b)), mask: binary.NativeEndian.Uint32(b[4:]),
			cookie: binary.NativeEndian.Uint32(b[8:]),
		}
		end := head + int(binary.NativeEndian.Uint32(b[12:]))
		if end > len(b) {
			break
		}
		name, _, _ := bytes.Cut(b[head:end], []byte{0})
		e.name = string(name)
		events = append(events, e)
		b = b[end:]
	}
	return events
}
