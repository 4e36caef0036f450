package app

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/fault"
)

func TestPrepareSaysWhichFolderCannotBeEntered(t *testing.T) {
	t.Parallel()
	needRoot(t)
	closed := filepath.Join(dataFolder(t), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(closed, "data")
	err := prepare(&config.Config{Data: data, SandboxBase: filepath.Join(data, "sandbox")}, &identity{"nobody", 65534, 65534})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "cannot enter "+closed+";") {
		t.Errorf("%v", err)
	}
}

func TestCanStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	who := &identity{"somebody", uint32(os.Getuid()) + 1, uint32(os.Getgid()) + 1}
	for mode, want := range map[os.FileMode]bool{0o700: false, 0o750: false, 0o755: true, 0o711: true} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if err := canStart(path, who); (err == nil) != want {
			t.Errorf("%o: %v", mode, err)
		}
	}
}

// A user who owns the folder must not be able to have us give them the files
// of others.
func TestGiveToFollowsNoLinks(t *testing.T) {
	t.Parallel()
	needRoot(t)
	base := dataFolder(t)
	dir, victim := filepath.Join(base, "manager"), filepath.Join(base, "victim")
	for _, err := range []error{
		os.Mkdir(dir, 0o700), os.WriteFile(victim, nil, 0o600), os.Symlink(victim, filepath.Join(dir, "link")),
		os.Link(victim, filepath.Join(dir, "second-name")), os.WriteFile(filepath.Join(dir, "own"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	who := &identity{"nobody", 65534, 65534}
	if err := giveTo(dir, who); err != nil {
		t.Fatal(err)
	}
	owner := func(path string) uint32 {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Uid
	}
	if owner(victim) != 0 {
		t.Error("a file of another was given away")
	}
	if owner(dir) != who.uid || owner(filepath.Join(dir, "own")) != who.uid {
		t.Error("the folder was not given")
	}
}

// A command that root ran earlier leaves a folder for root alone; what is in it
// stays closed when the folder is opened.
func TestPrepareOpensWhatRootMade(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	inner := filepath.Join(data, "sandbox")
	if err := os.MkdirAll(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := letThrough(data); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{data: 0o711, inner: 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has the mode %v, want %v", path, info.Mode(), want)
		}
	}
}
