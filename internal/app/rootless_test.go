package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/aurea-dev/aurea/internal/cli"
	"github.com/aurea-dev/aurea/internal/doctor"
	"github.com/aurea-dev/aurea/internal/driver/drivertest"
)

// A worker that is not root does not start with limits that it cannot keep, nor
// where not everybody may make namespaces. It says so at once, before it takes
// an image, and falls back to nothing; and doctor says the same.
func TestGVisorWithoutRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("left out: becoming another user needs root")
	}
	// A release, in a folder of its own that any user may enter.
	bin, data := dataFolder(t), dataFolder(t)
	if err := drivertest.Build(bin, "cmd/aurea-sentry", "cmd/aurea-guest"); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(bin, "aurea")
	body, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, body, 0o755); err != nil {
		t.Fatal(err)
	}
	user := &syscall.Credential{Uid: 54321, Gid: 54321}
	for path, owner := range map[string]int{bin: 0, data: int(user.Uid)} {
		if err := os.Chown(path, owner, owner); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := aureaAs(t, program, user, nil, nil, "worker", "--data", data, "--driver", "gvisor")
	if code := p.exit(t); code == cli.ExitOK {
		t.Error("it works")
	}
	last := lastOf(p.said(), "aurea: ")
	if !strings.Contains(last, "SANDBOX_CPU_LIMIT") && !strings.Contains(last, "needs root") {
		t.Errorf("says %q", p.said())
	}
	if found, err := filepath.Glob(filepath.Join(data, "*", "images", "roots", "*")); err != nil || len(found) > 0 {
		t.Errorf("it took %q, %v", found, err)
	}

	p = aureaAs(t, program, user, nil, nil, "doctor", "--data", data, "--driver", "gvisor", "--json")
	p.exit(t)
	var report doctor.Report
	if err := json.Unmarshal([]byte(p.said()), &report); err != nil {
		t.Fatalf("%v: %s", err, p.said())
	}
	if report.Healthy() {
		t.Errorf("all is well, says doctor: %+v", report)
	}
	lacks := 0
	for _, f := range report.Drivers[0].Findings {
		if f.Level == doctor.Lack {
			lacks++
		}
		if f.Level != doctor.OK && (f.Cost == "" || f.Remedy == "") {
			t.Errorf("%+v", f)
		}
	}
	if lacks == 0 {
		t.Errorf("nothing is missing, says doctor: %+v", report)
	}
}
