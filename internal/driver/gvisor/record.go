package gvisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/cgroup"
	"github.com/aurea-dev/aurea/internal/driver/roster"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/spawn"
)

// record is what is written down of a sandbox.
type record struct {
	Handle sandbox.Handle `json:"handle"`
	State  state          `json:"-"`
	// Root is the image's file.
	Root string `json:"root"`
	// ImageEnv is the image's, never nil, and Env with the sandbox's laid over it.
	ImageEnv []string          `json:"image_env"`
	Env      map[string]string `json:"env,omitempty"`
	Limits   sandbox.Limits    `json:"limits"`
	// Groups is where the sandbox's control groups are, or will be.
	Groups cgroup.Paths `json:"groups,omitempty"`
	// background and restore are how it is made; they are of no use to who
	// recovers it.
	background bool
	restore    string
}

// state is this driver's part of a handle.
type state struct {
	// Boot is the run of the machine in which the sandbox was made: after
	// another its processes are gone, and their numbers belong to others.
	Boot    string            `json:"boot"`
	Created time.Time         `json:"created"`
	Labels  map[string]string `json:"labels,omitempty"`
	// Image and Digest are what was asked for and what it stood for.
	Image  string `json:"image,omitempty"`
	Digest string `json:"digest,omitempty"`
	// Sentry and Guest are the digests of the binaries that the sandbox runs.
	// They are kept for as long as the sandbox is there.
	Sentry string `json:"sentry,omitempty"`
	Guest  string `json:"guest,omitempty"`
}

func (d *Driver) newRecord(spec sandbox.Spec, image sandbox.Image) (record, error) {
	s := state{Boot: d.boot, Created: time.Now(), Labels: spec.Labels, Image: image.Name, Digest: image.Digest, Sentry: d.sentry, Guest: d.guest}
	env := map[string]string{}
	for _, entry := range image.Env {
		// Who code is, and where it is at home, is not the image's to say.
		if name, value, ok := strings.Cut(entry, "="); ok && name != "HOME" && name != "USER" {
			env[name] = value
		}
	}
	for name, value := range spec.Env {
		env[name] = value
	}
	r := record{
		Handle: sandbox.Handle{Version: handleVersion, Driver: Name, ID: spec.ID},
		State:  s,
		Root:   image.Root,
		Env:    env,
		Limits: spec.Limits,
		Groups: d.groups.Places(spec.ID),

		ImageEnv: append([]string{}, image.Env...),

		background: spec.Background,
	}
	err := r.encode()
	return r, err
}

// encode puts the state into the handle.
func (r *record) encode() error {
	raw, err := json.Marshal(r.State)
	if err != nil {
		return fmt.Errorf("encode the handle: %w", err)
	}
	r.Handle.State = raw
	return nil
}

// readRecord reads what was written down, and the state in its handle.
func readRecord(dir string) (record, error) {
	r, err := roster.ReadRecord[record](dir)
	if err != nil {
		return record{}, err
	}
	if err := json.Unmarshal(r.Handle.State, &r.State); err != nil {
		return record{}, fmt.Errorf("decode the sandbox's handle: %w", err)
	}
	return r, nil
}

// readMade reads what the spawner wrote of the sandbox's process.
func readMade(dir string) (spawn.Made, error) {
	var made spawn.Made
	body, err := os.ReadFile(filepath.Join(dir, "process.json"))
	if err != nil {
		return spawn.Made{}, fmt.Errorf("read the sandbox's process: %w", err)
	}
	if err := json.Unmarshal(body, &made); err != nil {
		return spawn.Made{}, fmt.Errorf("decode the sandbox's process: %w", err)
	}
	return made, nil
}
