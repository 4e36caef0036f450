package guest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// What is the same in every sandbox with a guest.
const (
	Workspace   = "/workspace" // where commands start, and their home
	DefaultUser = "sandbox"    // whom commands run as
)

// Box is the part of a sandbox.Box that its guest does.
type Box struct {
	// ID is the sandbox's.
	ID string
	// Env is the image's environment, with the sandbox's laid over it.
	Env    map[string]string
	Client *Client
}

// Exec implements sandbox.Box.
func (b Box) Exec(ctx context.Context, spec sandbox.ExecSpec) (sandbox.Process, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	command := Command{
		ID: spec.ID, Args: spec.Command, Env: b.Environ(spec),
		Dir: spec.Dir, User: spec.User,
		TTY: spec.TTY, Stdin: spec.Stdin, Cols: spec.Cols, Rows: spec.Rows,
	}
	if command.Dir == "" {
		command.Dir = Workspace
	}
	if command.User == "" {
		command.User = DefaultUser
	}
	p, err := b.Client.Exec(ctx, command)
	if err != nil {
		return nil, fmt.Errorf("exec in sandbox %s: %w", b.ID, err)
	}
	return p, nil
}

// Environ implements sandbox.Environed.
func (b Box) Environ(spec sandbox.ExecSpec) []string {
	env := map[string]string{
		"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
		"HOME": Workspace,
		"LANG": "C.UTF-8",
		"USER": DefaultUser,
	}
	if spec.TTY {
		env["TERM"] = "xterm-256color"
	}
	maps.Copy(env, b.Env)
	maps.Copy(env, spec.Env)
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// Attach implements sandbox.Box.
func (b Box) Attach(ctx context.Context, id string, from sandbox.Offsets) (sandbox.Process, error) {
	if err := (sandbox.ExecSpec{ID: id, Command: []string{"-"}}).Validate(); err != nil {
		return nil, fault.New(fault.NotFound, "no exec %q: %w", id, err)
	}
	if from.Stdout < 0 || from.Stderr < 0 {
		return nil, fault.Field("from", "an offset is negative")
	}
	p, err := b.Client.Attach(ctx, id, from)
	if err != nil {
		return nil, fmt.Errorf("attach to exec %s in sandbox %s: %w", id, b.ID, err)
	}
	return p, nil
}

// Put implements sandbox.Box.
func (b Box) Put(ctx context.Context, dir string, tar io.Reader) error {
	if err := checkPath("dir", dir); err != nil {
		return err
	}
	if err := b.Client.Put(ctx, path.Clean(dir), tar); err != nil {
		return fmt.Errorf("put files into sandbox %s: %w", b.ID, err)
	}
	return nil
}

// PutLocked implements sandbox.Locker.
func (b Box) PutLocked(ctx context.Context, dir string, tar io.Reader) error {
	if err := checkPath("dir", dir); err != nil {
		return err
	}
	if err := b.Client.Lock(ctx, path.Clean(dir), tar); err != nil {
		return fmt.Errorf("put files into sandbox %s: %w", b.ID, err)
	}
	return nil
}

// Get implements sandbox.Box.
func (b Box) Get(ctx context.Context, name string, w io.Writer) error {
	if err := checkPath("path", name); err != nil {
		return err
	}
	if err := b.Client.Get(ctx, path.Clean(name), w); err != nil {
		return fmt.Errorf("get files from sandbox %s: %w", b.ID, err)
	}
	return nil
}

func checkPath(field, name string) error {
	const longest = 4096
	if !path.IsAbs(name) || len(name) >= longest || strings.ContainsRune(name, 0) {
		return fault.Field(field, "%q is not an absolute path in the sandbox", name)
	}
	return nil
}
