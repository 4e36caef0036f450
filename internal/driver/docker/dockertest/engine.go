// Package dockertest starts a Docker Engine of its own for tests and measurements: on a private
// socket, with private folders and without touching the host's network, with
// one image of a plain Debian with Python.
package dockertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/image/debiantest"
)

// Image is the name of the image that the engine has.
const Image = "aurea-test:latest"

// WorkerBase is the name of an image that a worker's can stand on.
const WorkerBase = "aurea-test-base:latest"

// The packages that Start needs, for those who must install them.
const packages = "docker.io mmdebstrap"

// Engine is a running Docker Engine.
type Engine struct {
	// Host is its address.
	Host string

	dir    string
	daemon *exec.Cmd
	exited chan error
	log    *os.File
}

// Missing says why no engine can be started here; "" is no reason.
func Missing() string {
	if os.Geteuid() != 0 {
		return "a Docker Engine of our own needs root"
	}
	for _, name := range []string{"dockerd", "containerd", "runc", "mmdebstrap"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Sprintf("%s is missing; install %s", name, packages)
		}
	}
	return ""
}

// Start starts an engine that has Image. The first run on a machine makes the
// image, which takes a minute or two.
func Start(ctx context.Context) (*Engine, error) { return start(ctx, setup{}) }

// StartIn does the same with an engine whose containers are in groups below
// the given one.
func StartIn(ctx context.Context, group string) (*Engine, error) {
	return start(ctx, setup{args: []string{"--cgroup-parent", group}})
}

// StartMapped starts an engine that maps users: root of a container is nobody
// on the host. The host's own tables are left alone.
func StartMapped(ctx context.Context) (*Engine, error) { return start(ctx, setup{mapped: true}) }

// StartNetworked starts an engine whose containers have networks, in a network
// of its own that reaches nothing else. It has WorkerBase instead of Image.
func StartNetworked(ctx context.Context) (*Engine, error) { return start(ctx, setup{networked: true}) }

// StartWithBase starts a plain engine that has WorkerBase instead of Image, with
// its containers in groups below the given one; "" is the engine's own.
func StartWithBase(ctx context.Context, group string) (*Engine, error) {
	s := setup{base: true}
	if group != "" {
		s.args = []string{"--cgroup-parent", group}
	}
	return start(ctx, s)
}

// setup is how an engine differs from a plain one.
type setup struct {
	mapped    bool
	networked bool
	base      bool
	args      []string
}

// image is what the engine has, and which packages it holds.
func (s setup) image() (name, packages string) {
	if s.networked || s.base {
		return WorkerBase, "python3,git,nodejs,systemd-sysv,curl,procps"
	}
	return Image, "python3"
}

func start(ctx context.Context, s setup) (e *Engine, err error) {
	image, packages := s.image()
	tarball, err := debiantest.Tarball(ctx, packages)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "dockerd")
	if err != nil {
		return nil, fmt.Errorf("make the engine's folder: %w", err)
	}
	e = &Engine{Host: "unix://" + filepath.Join(dir, "sock"), dir: dir, exited: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Stop())
		}
	}()
	if err := e.launch(s); err != nil {
		return e, err
	}
	if err := e.await(ctx); err != nil {
		return e, err
	}
	return e, e.load(ctx, tarball, image)
}

// launch starts the daemon. It brings its own containerd.
func (e *Engine) launch(s setup) error {
	config := filepath.Join(e.dir, "daemon.json")
	if err := os.WriteFile(config, []byte("{}"), 0o600); err != nil {
		return fmt.Errorf("write the engine's configuration: %w", err)
	}
	// Users that are mapped must be able to pass through.
	if err := os.Chmod(e.dir, 0o711); err != nil {
		return fmt.Errorf("open the engine's folder: %w", err)
	}
	log, err := os.Create(filepath.Join(e.dir, "log"))
	if err != nil {
		return fmt.Errorf("make the engine's log: %w", err)
	}
	e.log = log
	args := []string{
		"dockerd", "--config-file", config,
		"--data-root", filepath.Join(e.dir, "data"), "--exec-root", filepath.Join(e.dir, "exec"),
		"--pidfile", filepath.Join(e.dir, "pid"), "--host", e.Host,
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
	}
	args = append(args, s.args...)
	if s.mapped {
		if args, err = e.mapUsers(args); err != nil {
			return err
		}
	}
	if s.networked {
		args = append([]string{"unshare", "--net", "sh", "-ec", `ip link set lo up && exec "$@"`, "sh"}, args...)
	}
	e.daemon = exec.Command(args[0], args[1:]...)
	e.daemon.Stdout, e.daemon.Stderr = log, log
	// It goes when we go, even if we are killed.
	e.daemon.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGTERM}
	if err := e.daemon.Start(); err != nil {
		return fmt.Errorf("start dockerd: %w", err)
	}
	go func() { e.exited <- e.daemon.Wait() }()
	return nil
}

// Inside makes a command that runs in the network of a networked engine.
func (e *Engine) Inside(ctx context.Context, name string, args ...string) *exec.Cmd {
	in := append([]string{"--net=/proc/" + strconv.Itoa(e.daemon.Process.Pid) + "/ns/net", "--", name}, args...)
	return exec.CommandContext(ctx, "nsenter", in...)
}

// mapUsers lets the daemon find a range of users for nobody, in a mount
// namespace of its own.
func (e *Engine) mapUsers(dockerd []string) ([]string, error) {
	table := filepath.Join(e.dir, "ids")
	if err := os.WriteFile(table, []byte("nobody:300000:65536\nnogroup:300000:65536\n"), 0o644); err != nil {
		return nil, fmt.Errorf("write the table of users: %w", err)
	}
	script := `mount --make-rprivate / && mount --bind "$0" /etc/subuid && mount --bind "$0" /etc/subgid && exec "$@"`
	return append(append([]string{"unshare", "--mount", "sh", "-ec", script, table}, dockerd...), "--userns-remap=nobody:nogroup"), nil
}

// await waits until the engine answers.
func (e *Engine) await(ctx context.Context) error {
	const patience, pause = 90 * time.Second, 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	api, err := client.New(client.WithHost(e.Host))
	if err != nil {
		return fmt.Errorf("reach the engine: %w", err)
	}
	defer func() { _ = api.Close() }()
	for {
		_, err := api.Ping(ctx, client.PingOptions{})
		if err == nil {
			return nil
		}
		select {
		case end := <-e.exited:
			e.exited <- end
			return fmt.Errorf("dockerd ended (%w): %s", end, e.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("dockerd does not answer (%w): %s", err, e.lastWords())
		case <-time.After(pause):
		}
	}
}

func (e *Engine) lastWords() string {
	const enough = 1000
	body, _ := os.ReadFile(e.log.Name())
	return string(bytes.TrimSpace(body[max(0, len(body)-enough):]))
}

// load gives the engine its image.
func (e *Engine) load(ctx context.Context, tarball, image string) error {
	f, err := os.Open(tarball)
	if err != nil {
		return fmt.Errorf("open the image: %w", err)
	}
	defer func() { _ = f.Close() }()
	api, err := client.New(client.WithHost(e.Host))
	if err != nil {
		return fmt.Errorf("reach the engine: %w", err)
	}
	defer func() { _ = api.Close() }()
	answer, err := api.ImageImport(ctx, client.ImageImportSource{Source: f, SourceName: "-"}, image, client.ImageImportOptions{})
	if err != nil {
		return fmt.Errorf("import the image: %w", err)
	}
	defer func() { _ = answer.Close() }()
	said, err := io.ReadAll(answer)
	if err != nil || bytes.Contains(said, []byte("errorDetail")) {
		return fmt.Errorf("import the image: %w: %s", err, said)
	}
	return nil
}

// Stop ends the engine, with all of its containers, and removes its folders.
func (e *Engine) Stop() error {
	const patience = 30 * time.Second
	if e.daemon != nil && e.daemon.Process != nil {
		_ = e.daemon.Process.Signal(unix.SIGTERM)
		select {
		case <-e.exited:
		case <-time.After(patience):
			_ = e.daemon.Process.Kill()
			<-e.exited
		}
	}
	if e.log != nil {
		_ = e.log.Close()
	}
	// What a killed engine leaves mounted would keep its folder.
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("look for mounts: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], e.dir+"/") {
			_ = unix.Unmount(fields[1], unix.MNT_DETACH)
		}
	}
	if err := os.RemoveAll(e.dir); err != nil {
		return fmt.Errorf("remove the engine's folder: %w", err)
	}
	return nil
}
