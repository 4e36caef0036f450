package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Left is a contender that cannot be measured here, and why.
func Left(name, why string) Contender { return Contender{Name: name, Missing: why} }

// The names of those that others are compared with.
const (
	bareName  = "bare process"
	runscName = "runsc run"
)

// Bare runs commands as processes of this machine, with no wall at all.
func Bare() Contender {
	return Contender{Name: bareName, Run: func(ctx context.Context, command ...string) error {
		return run(ctx, command...)
	}}
}

// run runs a program and shows its last words if it fails. It is given
// nothing: no input, no environment but a path.
func run(ctx context.Context, command ...string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	// A file and not a pipe: what goes on in the background would hold that open.
	fd, err := unix.MemfdCreate("said", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make a file for the output: %w", err)
	}
	said := os.NewFile(uintptr(fd), "said")
	defer func() { _ = said.Close() }()
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Run(); err != nil {
		const most = 4096
		words := make([]byte, most)
		n, _ := said.ReadAt(words, 0)
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, bytes.TrimSpace(words[:n]))
	}
	return nil
}

// Driver runs commands in sandboxes of one of our drivers, in this process,
// which stands for a worker.
func Driver(d sandbox.Driver, image string) Contender {
	create := func(ctx context.Context) (Live, error) {
		id, err := sandbox.NewID()
		if err != nil {
			return nil, err
		}
		box, err := d.Create(ctx, sandbox.Spec{ID: id, Image: image}, func(sandbox.Handle) error { return nil })
		if err != nil {
			return nil, err
		}
		return &boxLive{driver: d, box: box}, nil
	}
	return Contender{Name: "aurea " + d.Name(), Create: create, Run: func(ctx context.Context, command ...string) error {
		live, err := create(ctx)
		if err != nil {
			return err
		}
		return errors.Join(live.Exec(ctx, command...), live.Destroy(ctx))
	}}
}

type boxLive struct {
	driver sandbox.Driver
	box    sandbox.Box
	execs  int
}

func (l *boxLive) Exec(ctx context.Context, command ...string) error {
	l.execs++
	p, err := l.box.Exec(ctx, sandbox.ExecSpec{ID: strconv.Itoa(l.execs), Command: command})
	if err != nil {
		return err
	}
	for {
		if _, err := p.Next(ctx); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	exit, err := p.Wait(ctx)
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("%v ended with %d", command, exit.Code)
	}
	return err
}

func (l *boxLive) Destroy(ctx context.Context) error { return l.driver.Destroy(ctx, l.box.Handle()) }

// commandLine is a program that makes sandboxes: its own commands for the
// steps of a life.
type commandLine struct {
	last atomic.Int64
	// Each makes the arguments for a sandbox with this id.
	run     func(id string, command []string) ([]string, error)
	create  func(id string) ([]string, error)
	exec    func(id string, command []string) []string
	destroy func(id string) []string
}

func (c *commandLine) id() string {
	return "bench" + strconv.Itoa(os.Getpid()) + "x" + strconv.FormatInt(c.last.Add(1), 10)
}

func (c *commandLine) contender(name string) Contender {
	return Contender{
		Name: name,
		Run: func(ctx context.Context, command ...string) error {
			args, err := c.run(c.id(), command)
			if err != nil {
				return err
			}
			return run(ctx, args...)
		},
		Create: func(ctx context.Context) (Live, error) {
			id := c.id()
			args, err := c.create(id)
			if err != nil {
				return nil, err
			}
			return &lineLive{line: c, id: id}, run(ctx, args...)
		},
	}
}

type lineLive struct {
	line *commandLine
	id   string
}

func (l *lineLive) Exec(ctx context.Context, command ...string) error {
	return run(ctx, l.line.exec(l.id, command)...)
}

func (l *lineLive) Destroy(ctx context.Context) error { return run(ctx, l.line.destroy(l.id)...) }

// wait is a command that waits to be ended.
func wait() []string { return []string{"/usr/bin/sleep", "infinity"} }

// Runc runs commands by runc over this machine's own /usr. Its folder holds
// the bundles.
func Runc(runc, folder string) Contender {
	return runtimeLine(folder, "", runc, "--root", filepath.Join(folder, "runc")).contender("runc run")
}

// Runsc does the same by gVisor's own program, without a network. Each sandbox
// is in a control group of its own, as each of ours is, below the given one.
func Runsc(runsc, folder, group string) Contender {
	return runtimeLine(folder, group, runsc, "--root", filepath.Join(folder, "runsc"), "--network=none").contender(runscName)
}

// RunscBare is Runsc without control groups: nothing bounds or counts what its
// sandboxes use.
func RunscBare(runsc, folder string) Contender {
	return runtimeLine(folder, "", runsc, "--root", filepath.Join(folder, "runsc"), "--network=none", "--ignore-cgroups").contender("runsc run, no groups")
}

func runtimeLine(folder, group string, tool ...string) *commandLine {
	say := func(words ...string) []string { return append(append([]string{}, tool...), words...) }
	var writing sync.Mutex // several clients begin at once
	write := func(id string, command []string) (string, error) {
		writing.Lock()
		defer writing.Unlock()
		return writeBundle(folder, group, id, command)
	}
	return &commandLine{
		run: func(id string, command []string) ([]string, error) {
			bundle, err := write(id, command)
			return say("run", "--bundle", bundle, id), err
		},
		create: func(id string) ([]string, error) {
			bundle, err := write(id, wait())
			return say("run", "--detach", "--bundle", bundle, id), err
		},
		exec:    func(id string, command []string) []string { return say(append([]string{"exec", id}, command...)...) },
		destroy: func(id string) []string { return say("delete", "--force", id) },
	}
}

// writeBundle writes an OCI bundle for a command over this machine's /usr, if
// it is not there yet. One that names a control group is for one sandbox.
func writeBundle(folder, group, id string, command []string) (string, error) {
	dir := filepath.Join(folder, "bundle-"+filepath.Base(command[0]))
	linux := map[string]any{}
	if group != "" {
		dir = filepath.Join(folder, "bundle-"+id)
		linux["cgroupsPath"] = filepath.Join(group, id)
		linux["resources"] = map[string]any{"memory": map[string]any{"limit": 512 << 20}, "pids": map[string]any{"limit": 512}}
	}
	config := filepath.Join(dir, "config.json")
	if _, err := os.Stat(config); err == nil {
		return dir, nil
	}
	root, err := writeRoot(folder)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", fmt.Errorf("make a bundle: %w", err)
	}
	type object = map[string]any
	var spaces []object
	for _, name := range []string{"pid", "ipc", "uts", "mount", "network"} {
		spaces = append(spaces, object{"type": name})
	}
	linux["namespaces"] = spaces
	body, err := json.Marshal(object{
		"ociVersion": "1.0.2",
		"process": object{
			"args": command, "cwd": "/", "env": []string{"PATH=/usr/bin:/bin"}, "noNewPrivileges": true,
			"user": object{"uid": 0, "gid": 0},
		},
		"root": object{"path": root, "readonly": true},
		"mounts": []object{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			// Each its own: runc makes links there, and several run at once.
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755"}},
			{"destination": "/usr", "type": "bind", "source": "/usr", "options": []string{"rbind", "ro"}},
		},
		"linux": linux,
	})
	if err != nil {
		return "", fmt.Errorf("make a bundle: %w", err)
	}
	return dir, os.WriteFile(config, body, 0o600)
}

// writeRoot makes the root of all bundles, if it is not there yet.
func writeRoot(folder string) (string, error) {
	root := filepath.Join(folder, "root")
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	for _, name := range []string{"usr", "proc", "dev"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			return "", fmt.Errorf("make a bundle: %w", err)
		}
	}
	for _, name := range []string{"bin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+name, filepath.Join(root, name)); err != nil {
			return "", fmt.Errorf("make a bundle: %w", err)
		}
	}
	return root, nil
}

// DockerRun runs commands by the Docker command line, in the engine at host.
func DockerRun(docker, host, image string) Contender {
	say := func(words ...string) []string { return append([]string{docker, "--host", host}, words...) }
	line := &commandLine{
		run: func(id string, command []string) ([]string, error) {
			return say(append([]string{"run", "--rm", "--name", id, "--network=none", image}, command...)...), nil
		},
		create: func(id string) ([]string, error) {
			return say(append([]string{"run", "--detach", "--name", id, "--network=none", image}, wait()...)...), nil
		},
		exec:    func(id string, command []string) []string { return say(append([]string{"exec", id}, command...)...) },
		destroy: func(id string) []string { return say("rm", "--force", id) },
	}
	return line.contender("docker run")
}
