package inside

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// errNoFolder: there is no such folder to start a command in.
var errNoFolder = errors.New("the working folder does not exist")

// candidates are the files that may be a program, in the order in which they count.
// One that is named with its folder is that one.
func candidates(name string, env []string) (names []string) {
	if name == "" || strings.Contains(name, "/") {
		return nil
	}
	for _, dir := range filepath.SplitList(lookEnv(env, "PATH")) {
		if filepath.IsAbs(dir) {
			names = append(names, filepath.Join(dir, name))
		}
	}
	return names
}

// choose finds the program among its candidates as they were seen, or gives the
// exit code that a shell would.
func choose(name string, names []string, seen []unix.Stat_t) (path string, code int) {
	if strings.Contains(name, "/") {
		return name, 0
	}
	code = notFound
	for i, candidate := range names {
		if mode := seen[i].Mode; mode == 0 || mode&unix.S_IFMT == unix.S_IFDIR {
			continue
		} else if mode&0o111 != 0 {
			return candidate, 0
		}
		code = notRun
	}
	return "", code
}

func lookEnv(env []string, name string) string {
	value := ""
	for _, entry := range env {
		if key, v, ok := strings.Cut(entry, "="); ok && key == name {
			value = v
		}
	}
	return value
}

// user is whom a command runs as.
type user struct{ uid, gid uint32 }

// users are those of the image.
type users struct {
	file string // that lists them; "" is /etc/passwd

	mu sync.Mutex
	// seen and list are that file as it was read last. To look whether it is
	// still that one takes one trip to the kernel, to read it four.
	seen unix.Stat_t
	list string
	own  *user // the guest's
}

// name is the file's.
func (l *users) name() string { return cmp.Or(l.file, "/etc/passwd") }

// find finds a user by name or number, or "uid:gid".
func (l *users) find(name string) (user, error) {
	var now unix.Stat_t
	if err := unix.Stat(l.name(), &now); err != nil {
		now = unix.Stat_t{}
	}
	return l.findIn(&now, name)
}

// findIn is find where the file was seen just now.
func (l *users) findIn(now *unix.Stat_t, name string) (user, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u, err := l.parse(now, name)
	if err != nil {
		return user{}, err
	}
	if l.own == nil {
		l.own = &user{uid: uint32(os.Getuid()), gid: uint32(os.Getgid())}
	}
	if u.uid == l.own.uid || u.gid == l.own.gid {
		// A command as the guest's own user could be the guest.
		return user{}, &refusal{status: wire.StatusDenied, reason: "this user is the sandbox's own"}
	}
	return u, nil
}

func (l *users) parse(now *unix.Stat_t, name string) (user, error) {
	first, second, pair := strings.Cut(name, ":")
	if uid, err := strconv.ParseUint(first, 10, 31); err == nil {
		gid := uid
		if pair {
			if gid, err = strconv.ParseUint(second, 10, 31); err != nil {
				return user{}, invalid("the group is not a number: " + second)
			}
		} else if u, ok := l.entry(now, func(fields []string) bool { return fields[2] == first }); ok {
			return u, nil
		}
		return user{uid: uint32(uid), gid: uint32(gid)}, nil
	}
	if u, ok := l.entry(now, func(fields []string) bool { return fields[0] == name }); ok {
		return u, nil
	}
	return user{}, invalid("the image has no such user: " + name)
}

func (l *users) entry(now *unix.Stat_t, match func(fields []string) bool) (user, bool) {
	if err := l.read(*now); err != nil {
		return user{}, false
	}
	for line := range strings.Lines(l.list) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) < 4 || !match(fields) {
			continue
		}
		uid, err1 := strconv.ParseUint(fields[2], 10, 31)
		gid, err2 := strconv.ParseUint(fields[3], 10, 31)
		if err1 == nil && err2 == nil {
			return user{uid: uint32(uid), gid: uint32(gid)}, true
		}
	}
	return user{}, false
}

// read has the list be what it is now.
func (l *users) read(now unix.Stat_t) error {
	if now.Mode == 0 {
		return unix.ENOENT
	}
	now.Atim = unix.Timespec{} // reading moves it
	if l.list != "" && now == l.seen {
		return nil
	}
	body, err := readSmall(l.name())
	if err != nil {
		return err
	}
	l.seen, l.list = now, string(body) // one that changed after the look is read again
	return nil
}

// maxSmall is how much of a small file is read.
const maxSmall = 1 << 20

// readSmall reads a file of the image in as few trips to the kernel as it takes:
// an os.File asks the poller for a place, which no file has, in five more.
func readSmall(name string) ([]byte, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	body := make([]byte, 0, 4<<10)
	for len(body) < maxSmall {
		n, err := unix.Read(fd, body[len(body):cap(body)])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		body = body[:len(body)+n]
		if n == 0 {
			return body, nil
		}
		if len(body) == cap(body) {
			body = slices.Grow(body, cap(body))
		}
	}
	return body[:maxSmall], nil
}
