package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// manifestFile is written last into a snapshot: a folder without it is none.
const (
	manifestFile    = "manifest.json"
	manifestVersion = 1
)

// manifest says what a snapshot is, because gVisor does not look: it would start
// a sandbox anew from files that are empty.
type manifest struct {
	Version    int       `json:"version"`
	Generation int64     `json:"generation"`
	Sandbox    string    `json:"sandbox"`
	Since      time.Time `json:"since"` // when the sandbox was first made
	Taken      time.Time `json:"taken"`
	// Sentry, Guest and Image are digests: what was saved goes on only with the
	// same.
	Sentry string `json:"sentry"`
	Guest  string `json:"guest"`
	Image  string `json:"image"`
	// ImageName and Env are the image's.
	ImageName string         `json:"image_name,omitempty"`
	Env       []string       `json:"env,omitempty"`
	Limits    sandbox.Limits `json:"limits"`
	Files     []savedFile    `json:"files"`
}

type savedFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

func (b *Box) manifest(generation int64) manifest {
	return manifest{
		Version: manifestVersion, Generation: generation, Sandbox: b.ID,
		Since: b.state.Created, Taken: time.Now(),
		Sentry: b.state.Sentry, Guest: b.state.Guest, Image: b.state.Digest,
		ImageName: b.state.Image, Env: b.env,
		Limits: b.Enforced(),
	}
}

func (m *manifest) bytes() int64 {
	var sum int64
	for _, f := range m.Files {
		sum += f.Size
	}
	return sum
}

// seal puts the files of a snapshot on disk, and then the manifest with their
// digests.
func (m *manifest) seal(ctx context.Context, folder string, verified *sync.Map) error {
	for _, name := range checkpointFiles() {
		if ctx.Err() != nil {
			return fault.New(fault.Unavailable, "seal the snapshot: %w", context.Cause(ctx))
		}
		saved, err := sealFile(filepath.Join(folder, name), verified)
		if err != nil {
			return fmt.Errorf("seal the snapshot: %w", err)
		}
		m.Files = append(m.Files, saved)
	}
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode the manifest: %w", err)
	}
	path := filepath.Join(folder, manifestFile)
	if err := writeSynced(path+".new", body); err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	return errors.Join(syncFolder(folder), syncFolder(filepath.Dir(folder)))
}

// sealFile puts a file on disk, and reads it meanwhile.
func sealFile(path string, verified *sync.Map) (savedFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return savedFile{}, err
	}
	defer func() { _ = f.Close() }()
	synced := make(chan error, 1)
	go func() { synced <- f.Sync() }()
	saved, err := digestFile(f, filepath.Base(path))
	if err := errors.Join(err, <-synced); err != nil {
		return savedFile{}, err
	}
	key, err := look(f)
	if err != nil {
		return savedFile{}, err
	}
	verified.Store(key, saved.SHA256)
	return saved, nil
}

func writeSynced(path string, body []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync a folder: %w", err)
	}
	return errors.Join(f.Sync(), f.Close())
}

func digestFile(f *os.File, name string) (savedFile, error) {
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return savedFile{}, fmt.Errorf("read %s: %w", name, err)
	}
	return savedFile{Name: name, Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}

// readManifest reads the manifest of a snapshot, and refuses what is none.
func readManifest(folder string) (manifest, error) {
	var m manifest
	f, err := os.Open(filepath.Join(folder, manifestFile))
	if err != nil {
		return m, broken("it has no manifest: %w", err)
	}
	defer func() { _ = f.Close() }()
	const longest = 64 << 10
	if err := json.NewDecoder(io.LimitReader(f, longest)).Decode(&m); err != nil {
		return m, broken("its manifest cannot be read: %w", err)
	}
	if m.Version != manifestVersion {
		return m, mismatch("its version is %d, this driver knows %d", m.Version, manifestVersion)
	}
	names := make([]string, 0, len(m.Files))
	for _, file := range m.Files {
		if file.Size == 0 && file.Name != "pages.img" {
			return m, broken("%s is empty", file.Name)
		}
		names = append(names, file.Name)
	}
	if !slices.Equal(names, checkpointFiles()) {
		return m, broken("it has other files than a snapshot")
	}
	return m, nil
}

func broken(format string, args ...any) error {
	return fault.Field("restore", "the snapshot cannot be used: "+format, args...).WithCode(sandbox.CodeSnapshotBroken)
}

func mismatch(format string, args ...any) error {
	return fault.Field("restore", "the snapshot does not fit: "+format, args...).WithCode(sandbox.CodeSnapshotMismatch)
}

// fits refuses a snapshot that cannot go on as what is asked for.
func (m manifest) fits(spec sandbox.Spec) error {
	saved, asked := m.Limits, spec.Limits
	switch {
	case spec.Generation != 0 && spec.Generation != m.Generation:
		return mismatch("it is of generation %d, and not of %d", m.Generation, spec.Generation)
	case saved.Disk != asked.Disk || saved.Processes != asked.Processes || saved.OpenFiles != asked.OpenFiles,
		(saved.Memory > 0) != (asked.Memory > 0), wholeCPUs(saved.MilliCPU) != wholeCPUs(asked.MilliCPU):
		return mismatch("it was taken under other limits: %+v", saved)
	}
	return nil
}

// seen is a file at a moment: a change to it changes one of these.
type seen struct {
	dev, ino   uint64
	size       int64
	mtime, age unix.Timespec
}

func look(f *os.File) (seen, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return seen{}, fmt.Errorf("look at %s: %w", filepath.Base(f.Name()), err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return seen{}, fmt.Errorf("%s is no file", filepath.Base(f.Name()))
	}
	return seen{stat.Dev, stat.Ino, stat.Size, stat.Mtim, stat.Ctim}, nil
}

// verify reads the files of a snapshot and compares them with its manifest. What
// was compared once, and was not touched since, is not read again: forks come in
// numbers.
func (d *Driver) verify(folder string, m manifest) error {
	for _, want := range m.Files {
		if err := d.verifyFile(filepath.Join(folder, want.Name), want); err != nil {
			return err
		}
	}
	return nil
}

func (d *Driver) verifyFile(path string, want savedFile) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return broken("%w", err)
	}
	defer func() { _ = f.Close() }()
	key, err := look(f)
	if err != nil {
		return broken("%w", err)
	}
	if key.size != want.Size {
		return broken("%s has %d bytes, and had %d", want.Name, key.size, want.Size)
	}
	if digest, ok := d.verified.Load(key); ok && digest == want.SHA256 {
		return nil
	}
	got, err := digestFile(f, want.Name)
	if err != nil {
		return broken("%w", err)
	}
	if got != want {
		return broken("%s was changed", want.Name)
	}
	d.verified.Store(key, want.SHA256)
	return nil
}
