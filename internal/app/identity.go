package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/fault"
)

// identity is a user without privileges.
type identity struct {
	name     string
	uid, gid uint32
}

// unprivileged returns whom the manager and the bridge run as: nil, which is
// ourselves, unless we are root.
func unprivileged() (*identity, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nobody else is a good answer
	}
	for _, name := range []string{"aurea", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("read the user %s: %w", name, err)
		}
		if uid == 0 {
			return nil, fault.New(fault.Invalid, "the user %s is root; the manager must not be", name)
		}
		return &identity{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, fault.New(fault.Invalid, "no user to run the manager as: add a user named aurea (useradd --system aurea)")
}

// prepare makes the data folder. The manager's part of it belongs to the user
// that it runs as, the rest to us.
func prepare(cfg *config.Config, who *identity) error {
	if who == nil {
		for _, dir := range []string{cfg.Data, cfg.ManagerDir(), cfg.SandboxBase, cfg.RunDir()} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return fmt.Errorf("make the data folder: %w", err)
			}
		}
		return nil
	}
	for _, d := range []struct {
		path string
		mode os.FileMode
	}{{cfg.Data, 0o711}, {cfg.RunDir(), 0o755}, {cfg.SandboxBase, 0o700}, {cfg.ManagerDir(), 0o700}} {
		if err := makeDir(d.path, d.mode); err != nil {
			return err
		}
	}
	if err := letThrough(cfg.Data); err != nil {
		return err
	}
	if err := canEnter(cfg.Data, who); err != nil {
		return err
	}
	if err := canStart("/proc/self/exe", who); err != nil {
		return err
	}
	return giveTo(cfg.ManagerDir(), who)
}

// makeDir makes a folder with its mode whatever the umask. One that is there
// keeps its own mode.
func makeDir(path string, mode os.FileMode) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the data folder: %w", err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	return nil
}

// letThrough lets others pass through the data folder, which a command that
// root ran before us, such as one about images, may have made for root alone.
// They see nothing by it: what lies in the folder is closed by itself.
func letThrough(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at the data folder: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o001 != 0 {
		return nil
	}
	if err := os.Chmod(dir, info.Mode().Perm()|0o011); err != nil {
		return fmt.Errorf("open the data folder: %w", err)
	}
	return nil
}

// canEnter checks that the user can reach the folder, so that the one who
// starts us reads why and not a riddle from the manager's log.
func canEnter(dir string, who *identity) error {
	for p := filepath.Clean(dir); ; p = filepath.Dir(p) {
		info, err := os.Stat(p)
		if err != nil {
			return fmt.Errorf("look at the data folder: %w", err)
		}
		if info.Mode().Perm()&allows(info, who) == 0 {
			return fault.New(fault.Invalid, "the user %s, whom the manager runs as, cannot enter %s; choose another folder with --data, or run chmod o+x %s", who.name, p, p).WithCode("bad_setting")
		}
		if p == filepath.Dir(p) {
			return nil
		}
	}
}

// allows returns the bit that lets the user enter a folder or start a file.
func allows(info os.FileInfo, who *identity) os.FileMode {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case ok && st.Uid == who.uid:
		return 0o100
	case ok && st.Gid == who.gid:
		return 0o010
	}
	return 0o001
}

// canStart checks that the user may start the binary that we are.
func canStart(binary string, who *identity) error {
	info, err := os.Stat(binary)
	if err != nil {
		return fmt.Errorf("look at our own binary: %w", err)
	}
	if info.Mode().Perm()&allows(info, who) == 0 {
		return fault.New(fault.Invalid, "the user %s, whom the manager runs as, may not start this binary; run chmod o+rx on it", who.name).WithCode("bad_setting")
	}
	return nil
}

// giveTo makes the user the owner of a folder and of all that is in it, where
// it is not yet. Links are never followed, and a file with a second name is
// left alone: the user could have linked somebody else's here.
func giveTo(dir string, who *identity) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at the manager's folder: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid == who.uid && st.Gid == who.gid {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open the manager's folder: %w", err)
	}
	defer func() { _ = root.Close() }()
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || !d.IsDir() && st.Nlink > 1 {
			return nil
		}
		return root.Lchown(path, int(who.uid), int(who.gid))
	})
	// The folder itself comes last, so that a half-done change is done again.
	if err == nil {
		err = root.Lchown(".", int(who.uid), int(who.gid))
	}
	if err != nil {
		return fmt.Errorf("give the manager's folder to %s: %w", who.name, err)
	}
	return nil
}
