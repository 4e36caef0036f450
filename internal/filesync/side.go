package filesync

import (
	"context"
	"io"
	"path"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/file"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Side is the sandbox's files; every sandbox.Filer is one, under its contract.
type Side interface {
	List(ctx context.Context, path string, depth, most int) (found []sandbox.FileInfo, more bool, err error)
	ReadFile(ctx context.Context, path string, offset, length int64, w io.Writer) (sandbox.FileInfo, error)
	WriteFile(ctx context.Context, path string, mode uint32, body io.Reader) (sandbox.FileInfo, error)
	Remove(ctx context.Context, path string, recursive bool) error
}

// tree is what was found in a sandbox.
type tree struct {
	files map[string]sandbox.FileInfo // by path below the root
	// taken are paths at which something stands that is neither file nor folder.
	taken map[string]bool
	// unknown are folders of which not everything is known, so that what is
	// missing in them cannot be told from what was not seen; "" is the root.
	unknown map[string]bool
}

// sure reports whether a path that was not found is not there.
func (t *tree) sure(name string) bool {
	for dir := parent(name); ; dir = parent(dir) {
		if t.unknown[dir] || t.taken[dir] {
			return false
		}
		if dir == "" {
			return !t.unknown[name] && !t.taken[name]
		}
	}
}

func parent(name string) string {
	dir := path.Dir(name)
	if dir == "." {
		return ""
	}
	return dir
}

// look walks the tree folder by folder, so that what is ignored costs nothing.
func (p *pass) look(ctx context.Context) error {
	p.tree = &tree{files: map[string]sandbox.FileInfo{}, taken: map[string]bool{}, unknown: map[string]bool{}}
	folders := []string{""}
	for len(folders) > 0 {
		dir := folders[0]
		folders = folders[1:]
		found, more, err := p.side.List(ctx, path.Join(p.root, dir), 1, sandbox.MaxListed)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch {
		case err != nil && dir == "" && fault.Is(err, fault.NotFound) && len(p.synced) == 0:
			return nil // a tree that is still to be made
		case err != nil && dir == "":
			return err
		case err != nil:
			p.tree.unknown[dir] = true
			p.fail(dir, err)
			continue
		case more:
			p.tree.unknown[dir] = true
			p.fail(dir, fault.New(fault.TooLarge, "the folder has more than %d entries", sandbox.MaxListed).WithCode("too_many_files"))
		}
		for _, info := range found {
			if sub, ok := p.enter(dir, info); ok {
				folders = append(folders, sub)
			}
		}
	}
	return nil
}

// enter takes note of one entry; a folder to look into is returned.
func (p *pass) enter(dir string, info sandbox.FileInfo) (folder string, ok bool) {
	base := path.Base(info.Path)
	if strings.ContainsAny(base, "/\x00") || base == "." || base == ".." {
		return "", false // a guest that lies
	}
	name := path.Join(dir, base)
	isDir := info.Type == sandbox.TypeDir
	if p.ignored.match(name, isDir) {
		return "", false
	}
	if err := file.CheckPath(name); err != nil {
		p.fail(name, err)
		return "", false
	}
	if isDir {
		return name, true
	}
	if info.Type != sandbox.TypeFile {
		p.tree.taken[name] = true
		return "", false
	}
	if len(p.tree.files) >= p.limits.Files {
		if !p.tree.unknown[""] {
			p.fail("", fault.New(fault.TooLarge, "there are more than %d files", p.limits.Files).WithCode("too_many_files"))
		}
		p.tree.unknown[dir], p.tree.unknown[""] = true, true
		return "", false
	}
	p.tree.files[name] = info
	return "", false
}

// read reads a file of the sandbox, up to the bound of a file.
func (p *pass) read(ctx context.Context, name string) ([]byte, sandbox.FileInfo, error) {
	to := &bounded{left: p.limits.FileBytes}
	info, err := p.side.ReadFile(ctx, path.Join(p.root, name), 0, p.limits.FileBytes+1, to)
	if to.over {
		return nil, info, tooLarge(p.limits.FileBytes)
	}
	return to.data, info, err
}

// bounded keeps what is written, up to a bound.
type bounded struct {
	data []byte
	left int64
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		b.over = true
		return 0, tooLarge(int64(len(b.data)) + b.left)
	}
	b.left -= int64(len(p))
	b.data = append(b.data, p...)
	return len(p), nil
}

func tooLarge(most int64) error {
	return fault.New(fault.TooLarge, "the file has more than %d bytes", most).WithCode("file_too_large")
}
