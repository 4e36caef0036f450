// Package gvisortest makes a small image for tests that need real sandboxes: a
// few of the host's programs, in a second, where the host's own
// image takes many.
package gvisortest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/image/erofs"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Images has one image, whose file is Root. It implements sandbox.Images.
type Images struct{ Root string }

// Resolve returns the one image, for "" and "host".
func (i Images) Resolve(_ context.Context, name string) (sandbox.Image, error) {
	if name != "" && name != "host" {
		return sandbox.Image{}, fault.New(fault.NotFound, "no image %q", name)
	}
	return sandbox.Image{
		Name: "host", Digest: "sha256:0", Root: i.Root,
		Env: []string{"FROM_IMAGE=yes", "HOME=/nowhere", "broken"},
	}, nil
}

// programs is what the tests run, of the host's.
func programs() []string {
	return []string{
		"bash", "cat", "chmod", "cut", "dd", "echo", "env", "false", "find", "grep", "head", "id", "kill", "ln", "ls", "mkdir", "mkfifo",
		"mount", "nproc", "od", "printenv", "ps", "pwd", "python3", "rm", "sed", "seq", "setsid", "sh", "sleep", "sort", "stat", "stty",
		"su", "tail", "test", "touch", "tr", "true", "tty", "uname", "wc",
	}
}

// builder puts files of the host into an image, each where it is there.
type builder struct {
	w    *erofs.Writer
	root *erofs.Node
}

// Make makes the image in a folder, with programs of the host's beyond those
// that every test needs.
func Make(dir string, more ...string) (Images, error) {
	path := filepath.Join(dir, "root.erofs")
	f, err := os.Create(path)
	if err != nil {
		return Images{}, fmt.Errorf("make an image: %w", err)
	}
	defer func() { _ = f.Close() }()
	b := &builder{w: erofs.NewWriter(f), root: erofs.NewFolder(0o755)}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if target, err := os.Readlink("/" + name); err == nil {
			b.root.Entries[name] = &erofs.Node{Mode: erofs.Link | 0o777, Target: target}
		}
	}
	b.folder("/tmp").Mode = erofs.Folder | 0o1777
	work := b.folder("/workspace")
	work.UID, work.GID = 1000, 1000
	for _, name := range []string{"/.aurea", "/proc", "/dev", "/sys", "/usr/local"} {
		b.folder(name)
	}
	for _, name := range append(programs(), more...) {
		if err := b.program(name); err != nil {
			return Images{}, err
		}
	}
	if err := b.python(); err != nil {
		return Images{}, err
	}
	const passwd = "root:x:0:0::/:/bin/sh\nsandbox:x:1000:1000::/workspace:/bin/sh\naurea:x:65533:65533::/:/bin/false\nnobody:x:65534:65534::/:/bin/false\n"
	if err := errors.Join(
		b.text("/etc/passwd", passwd),
		b.text("/etc/group", "root:x:0:\nsandbox:x:1000:\naurea:x:65533:\nnogroup:x:65534:\n"),
		b.w.Finish(b.root),
	); err != nil {
		return Images{}, fmt.Errorf("make an image: %w", err)
	}
	return Images{Root: path}, nil
}

func (b *builder) folder(path string) *erofs.Node {
	at := b.root
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		next := at.Entries[name]
		if next != nil && next.IsLink() {
			next = b.folder(next.Target)
		}
		if next == nil {
			next = erofs.NewFolder(0o755)
			at.Entries[name] = next
		}
		at = next
	}
	return at
}

// copy puts a file of the host at a path, with what it is a link to.
func (b *builder) copy(from, to string) error {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	data, err := b.w.Append(f, info.Size())
	if err != nil {
		return err
	}
	b.folder(filepath.Dir(to)).Entries[filepath.Base(to)] = &erofs.Node{Mode: erofs.Regular | uint16(info.Mode().Perm()), Data: data}
	return nil
}

func (b *builder) text(to, content string) error {
	data, err := b.w.Append(strings.NewReader(content), int64(len(content)))
	if err != nil {
		return err
	}
	b.folder(filepath.Dir(to)).Entries[filepath.Base(to)] = &erofs.Node{Mode: erofs.Regular | 0o644, Data: data}
	return nil
}

// program puts a program there, and the libraries that it is linked with.
func (b *builder) program(name string) error {
	path := "/usr/bin/" + name // the system's, not what somebody's PATH prefers
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("the tests need %s: %w", name, err)
	}
	if err := b.copy(path, "/usr/bin/"+name); err != nil {
		return err
	}
	return b.libraries(path)
}

func (b *builder) libraries(path string) error {
	out, err := exec.Command("ldd", path).CombinedOutput()
	if err != nil {
		return nil // it is static, or a script
	}
	for field := range strings.FieldsSeq(string(out)) {
		if !filepath.IsAbs(field) || b.folder(filepath.Dir(field)).Entries[filepath.Base(field)] != nil {
			continue
		}
		if err := b.copy(field, field); err != nil {
			return err
		}
	}
	return nil
}

// python puts Python's own modules there.
func (b *builder) python() error {
	out, err := exec.Command("/usr/bin/python3", "-c", "import os; print(os.path.dirname(os.__file__))").Output()
	if err != nil {
		return fmt.Errorf("find Python's modules: %w", err)
	}
	return filepath.WalkDir(strings.TrimSpace(string(out)), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "test" || d.Name() == "__pycache__" || d.Name() == "idlelib" || d.Name() == "site-packages" || strings.HasPrefix(d.Name(), "config-")):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		if strings.HasSuffix(path, ".so") {
			if err := b.libraries(path); err != nil {
				return err
			}
		}
		return b.copy(path, path)
	})
}
