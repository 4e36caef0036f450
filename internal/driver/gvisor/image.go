package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// hostImage is the image that needs no download: the host's own programs.
const hostImage = "host"

// guestPath is where the guest is in every sandbox.
const guestPath = "/.aurea/guest"

// sandboxUID is the user that commands run as.
const sandboxUID = 1000

// image is a root for sandboxes: a folder of ours, with folders of the host
// mounted into it, read-only.
type image struct {
	name  string
	root  string
	binds []string
}

// entry is one thing in the root folder.
type entry struct {
	path    string
	mode    fs.FileMode
	owner   int
	content []byte
	target  string // of a symbolic link
}

// makeHostImage makes the root of the host image below dir. Its name holds a
// digest of its content: where a host has changed, new sandboxes get a new
// root, and those that run keep theirs.
func makeHostImage(dir, guest string) (image, error) {
	entries, binds, err := hostEntries(guest)
	if err != nil {
		return image{}, err
	}
	name := hostImage + "-" + digest(entries)
	made := image{name: name, root: filepath.Join(dir, name), binds: binds}
	if _, err := os.Lstat(made.root); err == nil {
		return made, nil
	}
	aside, err := os.MkdirTemp(dir, ".new")
	if err != nil {
		return image{}, fmt.Errorf("make the host image: %w", err)
	}
	defer func() { _ = os.RemoveAll(aside) }()
	for _, e := range entries {
		if err := e.write(aside); err != nil {
			return image{}, fmt.Errorf("make %s in the host image: %w", e.path, err)
		}
	}
	if err := os.Chmod(aside, 0o755); err != nil {
		return image{}, fmt.Errorf("make the host image: %w", err)
	}
	// Another may have made the same meanwhile: then either will do.
	if err := os.Rename(aside, made.root); err != nil && !errors.Is(err, fs.ErrExist) {
		return image{}, fmt.Errorf("make the host image: %w", err)
	}
	return made, nil
}

func (e entry) write(root string) error {
	path := filepath.Join(root, e.path)
	switch {
	case e.mode.IsDir():
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
	case e.mode&fs.ModeSymlink != 0:
		return os.Symlink(e.target, path)
	default:
		if err := os.WriteFile(path, e.content, 0o600); err != nil {
			return err
		}
	}
	if err := os.Chown(path, e.owner, e.owner); err != nil {
		return err
	}
	return os.Chmod(path, e.mode)
}

func digest(entries []entry) string {
	h := sha256.New()
	for _, e := range entries {
		_, _ = fmt.Fprintf(h, "%q %v %d %q %d ", e.path, e.mode, e.owner, e.target, len(e.content))
		h.Write(e.content)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// hostEntries lists what the root holds, parents first, and which folders of
// the host are mounted into it.
func hostEntries(guest string) ([]entry, []string, error) {
	binary, err := os.ReadFile(guest)
	if err != nil {
		return nil, nil, fmt.Errorf("read the guest: %w", err)
	}
	entries := []entry{
		folder("/.aurea"),
		{path: guestPath, mode: 0o555, content: binary},
		folder("/dev"), folder("/proc"), folder("/sys"), folder("/run"), folder("/usr"),
		{path: "/tmp", mode: fs.ModeDir | fs.ModeSticky | 0o777},
		folder("/var"),
		{path: "/var/tmp", mode: fs.ModeDir | fs.ModeSticky | 0o777},
		{path: "/workspace", mode: fs.ModeDir | 0o755, owner: sandboxUID},
	}
	binds := []string{"/usr"}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		info, err := os.Lstat("/" + name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, nil, fmt.Errorf("look at the host: %w", err)
		case info.IsDir():
			entries = append(entries, folder("/"+name))
			binds = append(binds, "/"+name)
		case info.Mode()&fs.ModeSymlink != 0:
			entries = appendLink(entries, "/"+name, "usr/")
		}
	}
	entries = append(entries, etcEntries()...)
	return entries, binds, nil
}

func folder(path string) entry { return entry{path: path, mode: fs.ModeDir | 0o755} }

// appendLink appends a symbolic link of the host if it leads to where its
// target begins: the rest of the host is not there.
func appendLink(entries []entry, path string, begins ...string) []entry {
	target, err := os.Readlink(path)
	if err != nil {
		return entries
	}
	for _, begin := range begins {
		if strings.HasPrefix(target, begin) {
			return append(entries, entry{path: path, mode: fs.ModeSymlink, target: target})
		}
	}
	return entries
}

// etcEntries is the smallest /etc with which programs of the host work: ours,
// but for where the host's programs and libraries are.
func etcEntries() []entry {
	file := func(name, content string) entry {
		return entry{path: "/etc/" + name, mode: 0o644, content: []byte(content)}
	}
	entries := []entry{
		folder("/etc"),
		file("passwd", fmt.Sprintf("root:x:0:0:root:/root:/bin/sh\nsandbox:x:%[1]d:%[1]d:sandbox:/workspace:/bin/sh\n"+
			"aurea:x:%[2]d:%[2]d:guest:/:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n", sandboxUID, guestUID)),
		file("group", fmt.Sprintf("root:x:0:\nsandbox:x:%d:\naurea:x:%d:\nnogroup:x:65534:\n", sandboxUID, guestUID)),
		file("hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"),
		file("hostname", "sandbox\n"),
		file("resolv.conf", ""),
		file("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
	}
	if cache, err := os.ReadFile("/etc/ld.so.cache"); err == nil {
		entries = append(entries, entry{path: "/etc/ld.so.cache", mode: 0o644, content: cache})
	}
	names, err := os.ReadDir("/etc/alternatives")
	if err != nil {
		return entries // this host has none
	}
	entries = append(entries, folder("/etc/alternatives"))
	for _, name := range names {
		entries = appendLink(entries, "/etc/alternatives/"+name.Name(), "/usr/", "/bin/", "/sbin/", "/lib")
	}
	return entries
}
