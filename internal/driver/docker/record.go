package docker

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/driver/roster"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// record is what is written down of a sandbox.
type record struct {
	Handle   sandbox.Handle    `json:"handle"`
	Created  time.Time         `json:"created"`
	Image    string            `json:"image"` // the engine's id of it
	Env      map[string]string `json:"env,omitempty"`
	Enforced sandbox.Limits    `json:"enforced"`
	// User is the number of the user that commands run as, Guest the guest's.
	User  uint32 `json:"user"`
	Guest uint32 `json:"guest"`
}

// state is this driver's part of a handle.
type state struct {
	Container string            `json:"container"`
	Labels    map[string]string `json:"labels,omitempty"`
}

func (d *Driver) newRecord(spec sandbox.Spec, image image, limits sandbox.Limits) (record, error) {
	raw, err := json.Marshal(state{Container: d.container(spec.ID), Labels: spec.Labels})
	if err != nil {
		return record{}, fmt.Errorf("encode the handle: %w", err)
	}
	env := map[string]string{}
	for _, entry := range image.env {
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" {
			env[name] = value
		}
	}
	for name, value := range spec.Env {
		env[name] = value
	}
	user := d.engine.user(spec.ID)
	return record{
		Handle:  sandbox.Handle{Version: handleVersion, Driver: Name, ID: spec.ID, State: raw},
		Created: time.Now(), Image: image.id, Env: env, Enforced: limits,
		User: user, Guest: user + 1,
	}, nil
}

// writeBox writes everything of a sandbox that comes before its container.
func (d *Driver) writeBox(dir string, r record, image image) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the sandbox's record: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make the sandbox's folder: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, roster.RecordName), body, 0o600); err != nil {
		return fmt.Errorf("write the sandbox's record: %w", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
		return fmt.Errorf("make the sandbox's files: %w", err)
	}
	for name, content := range etcFiles(image, r) {
		if err := os.WriteFile(filepath.Join(dir, "etc", name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("write the sandbox's files: %w", err)
		}
	}
	return d.makeChannel(filepath.Join(dir, "channel"), int(r.Guest)+d.engine.shift)
}

// makeChannel makes the FIFOs. Folder and FIFOs belong to the guest's user, so
// that no command can reach them.
func (d *Driver) makeChannel(dir string, owner int) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make the guest's channel: %w", err)
	}
	for _, name := range []string{"in", "out"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(unix.Mkfifo(path, 0o600), os.Lchown(path, owner, owner)); err != nil {
			return fmt.Errorf("make the guest's channel: %w", err)
		}
	}
	if err := os.Lchown(dir, owner, owner); err != nil {
		return fmt.Errorf("hand over the guest's channel: %w", err)
	}
	return nil
}

// stateID is a name for this folder that no other has: the engine may serve
// several workers, and each sweeps its own only.
func stateID(dir string) (string, error) {
	path := filepath.Join(dir, "id")
	body, err := os.ReadFile(path)
	if err == nil && len(body) == 12 && strings.Trim(string(body), "0123456789abcdef") == "" {
		return string(body), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the state folder's id: %w", err)
	}
	var random [6]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", fmt.Errorf("make the state folder's id: %w", err)
	}
	id := hex.EncodeToString(random[:])
	if err := writeAside(path, []byte(id), 0o600); err != nil {
		return "", fmt.Errorf("write the state folder's id: %w", err)
	}
	return id, nil
}

// installGuest copies the guest into the state folder under its digest, so
// that a container keeps the one that it was made with.
func installGuest(dir, guest string) (string, error) {
	body, err := os.ReadFile(guest)
	if err != nil {
		return "", fault.New(fault.Unavailable, "the docker driver needs the guest: %w (build it with make build)", err)
	}
	sum := sha256.Sum256(body)
	path := filepath.Join(dir, "guest-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Lstat(path); err == nil {
		return path, nil
	}
	if err := writeAside(path, body, 0o555); err != nil {
		return "", fmt.Errorf("install the guest: %w", err)
	}
	return path, nil
}

// writeAside writes a file that is there as a whole or not at all.
func writeAside(path string, body []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(body)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
