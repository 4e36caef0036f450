package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

// binaries is the folder of the program under test, images the one of the
// images that its sandboxes start from. That is kept between runs: taking the
// host's image copies all of its programs.
var binaries, images string

func TestMain(m *testing.M) {
	testscript.Main(suite{m}, map[string]func(){"http": httpMain, "types": typesMain})
}

// suite builds the program once and removes it after the tests.
type suite struct{ *testing.M }

// Run builds, runs the tests, and looks for what they left running.
func (s suite) Run() int {
	dir, err := os.MkdirTemp("/tmp", "aurea-e2e-bin-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the program:", err)
		return 1
	}
	binaries = dir
	if err := bases.start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := takeImages(); err != nil {
		fmt.Fprintln(os.Stderr, "take the host's image:", err)
		_ = bases.stop()
		return 1
	}
	code := s.M.Run()
	if err := bases.stop(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if found := left(dir); len(found) > 0 && code == 0 {
		fmt.Fprintln(os.Stderr, "left running:\n"+strings.Join(found, "\n"))
		return 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// build makes the three binaries, static as they are shipped.
func build(dir string) error {
	// Without the commit in it, so that the same guest is the same file.
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", dir+string(filepath.Separator),
		"github.com/aurea-dev/aurea/cmd/aurea", "github.com/aurea-dev/aurea/cmd/aurea-sentry", "github.com/aurea-dev/aurea/cmd/aurea-guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// takeImages makes the host's image ready, unless it is.
func takeImages() error {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	images = filepath.Join(cache, "aurea-test", "images")
	if !hasGVisor() {
		return nil
	}
	cmd := exec.Command(filepath.Join(binaries, "aurea"), "image", "pull", "host", "--data", filepath.Join(binaries, "data"), "--images", images)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// inCI reports whether nothing may be left out.
func inCI() bool { return os.Getenv("CI") == "true" }

// hasGVisor reports whether real sandboxes can be made here. In CI they must.
func hasGVisor() bool { return os.Geteuid() == 0 || inCI() }

func needGVisor(t *testing.T) {
	t.Helper()
	if !hasGVisor() {
		t.Skip("left out: real sandboxes need root")
	}
}

// dataFolder is a folder that an unprivileged manager can reach.
func dataFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "aurea-e2e-")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("something still uses the data folder: %v", err)
		}
	})
	return dir
}
