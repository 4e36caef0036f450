package inside

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// lookPath finds the program, or gives the exit code that a shell would.
func lookPath(name string, env []string) (path string, code int) {
	if strings.Contains(name, "/") {
		return name, 0
	}
	if name == "" {
		return "", 127
	}
	code = 127
	for _, dir := range filepath.SplitList(lookEnv(env, "PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		candidate := filepath.Join(dir, name)
		info, err := os.Stat(candidate)
		if err != nil || info.IsDir() {
			continue
		}
		if info.Mode()&0o111 != 0 {
			return candidate, 0
		}
		code = 126
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

// findUser finds a user of the image by name or number, or "uid:gid".
func findUser(name string) (user, error) {
	u, err := parseUser(name)
	if err != nil {
		return user{}, err
	}
	if int(u.uid) == os.Getuid() || int(u.gid) == os.Getgid() {
		// A command as the guest's own user could be the guest.
		return user{}, &refusal{status: wire.StatusDenied, reason: "this user is the sandbox's own"}
	}
	return u, nil
}

func parseUser(name string) (user, error) {
	first, second, pair := strings.Cut(name, ":")
	if uid, err := strconv.ParseUint(first, 10, 31); err == nil {
		gid := uid
		if pair {
			if gid, err = strconv.ParseUint(second, 10, 31); err != nil {
				return user{}, invalid("the group is not a number: " + second)
			}
		} else if u, ok := passwdEntry(func(fields []string) bool { return fields[2] == first }); ok {
			return u, nil
		}
		return user{uid: uint32(uid), gid: uint32(gid)}, nil
	}
	if u, ok := passwdEntry(func(fields []string) bool { return fields[0] == name }); ok {
		return u, nil
	}
	return user{}, invalid("the image has no such user: " + name)
}

func passwdEntry(match func(fields []string) bool) (user, bool) {
	body, err := readSmall("/etc/passwd")
	if err != nil {
		return user{}, false
	}
	for line := range strings.Lines(string(body)) {
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
