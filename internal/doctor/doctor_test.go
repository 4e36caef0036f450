package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/cgroup"
)

// host is a machine of files.
func host(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func good() map[string]string {
	return map[string]string{
		"proc/sys/kernel/ostype": "Linux\n", "proc/sys/kernel/osrelease": "6.1.0\n",
		"proc/sys/kernel/seccomp/actions_avail": "kill_process kill_thread trap errno user_notif allow\n",
		"proc/sys/user/max_user_namespaces":     "1000\n",
		"proc/sys/kernel/yama/ptrace_scope":     "1\n",
		"proc/meminfo":                          "MemTotal: 8000000 kB\nMemAvailable:   4000000 kB\n",
		"proc/filesystems":                      "nodev\toverlay\n\text4\n",
	}
}

func examine(t *testing.T, files map[string]string, change func(*Options)) Report {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(bin, []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	o := Options{Chosen: "gvisor", Sentry: bin, Guest: bin, Data: t.TempDir(), DockerHost: "unix:///nowhere", Root: host(t, files), Superuser: true}
	if change != nil {
		change(&o)
	}
	return Examine(t.Context(), o)
}

func find(t *testing.T, r Report, driver, name string) Finding {
	t.Helper()
	for _, d := range r.Drivers {
		for _, f := range d.Findings {
			if d.Name == driver && f.Name == name {
				return f
			}
		}
	}
	t.Fatalf("%s says nothing of %q", driver, name)
	return Finding{}
}

func TestEachLackHasAReasonAndARemedy(t *testing.T) {
	t.Parallel()
	if r := examine(t, good(), nil); !r.Healthy() || r.Kernel != "Linux 6.1.0" {
		t.Errorf("a good machine: %+v", r)
	}
	without := func(name string) map[string]string {
		files := good()
		delete(files, name)
		return files
	}
	for name, c := range map[string]struct {
		files  map[string]string
		change func(*Options)
		level  Level
	}{
		"root":               {good(), func(o *Options) { o.Superuser, o.Rootless = false, errors.New("forbidden") }, Lack},
		"control of memory":  {good(), func(o *Options) { o.Limited = map[cgroup.Controller]bool{cgroup.Memory: true} }, Lack},
		"control of cpu":     {good(), func(o *Options) { o.Limited = map[cgroup.Controller]bool{cgroup.Memory: false} }, Weak},
		"sentry and guest":   {good(), func(o *Options) { o.BinariesErr = errors.New("not built") }, Lack},
		"sentry":             {good(), func(o *Options) { o.Sentry = "/nowhere" }, Lack},
		"seccomp":            {without("proc/sys/kernel/seccomp/actions_avail"), nil, Lack},
		"user namespaces":    {without("proc/sys/user/max_user_namespaces"), nil, Weak},
		"systrap and ptrace": {func() map[string]string { f := good(); f["proc/sys/kernel/yama/ptrace_scope"] = "3"; return f }(), nil, Lack},
		"memory":             {func() map[string]string { f := good(); f["proc/meminfo"] = "MemAvailable: 1000 kB\n"; return f }(), nil, Weak},
		"control groups":     {good(), nil, Weak}, // the machine of files has none
	} {
		r := examine(t, c.files, c.change)
		f := find(t, r, "gvisor", name)
		if f.Level != c.level || f.Cost == "" || f.Remedy == "" {
			t.Errorf("%s: %+v", name, f)
		}
		if r.Healthy() != (c.level != Lack) {
			t.Errorf("%s: healthy is %v", name, r.Healthy())
		}
	}
	// Without root it works with less, where everybody may make namespaces.
	r := examine(t, good(), func(o *Options) { o.Superuser = false })
	if f := find(t, r, "gvisor", "root"); !r.Healthy() || f.Level != Weak || f.Cost == "" || f.Remedy == "" {
		t.Errorf("without root: %+v", f)
	}
	if f := find(t, r, "gvisor", "control of memory"); !strings.Contains(f.Remedy, "SANDBOX_MEMORY_LIMIT=0") {
		t.Errorf("without groups: %+v", f)
	}
	if r := examine(t, good(), func(o *Options) { o.Chosen = "docker" }); r.Healthy() || find(t, r, "docker", "docker engine").Remedy == "" {
		t.Errorf("without an engine: %+v", r)
	}
	if r := examine(t, nil, func(o *Options) { o.Chosen, o.Superuser = "fake", false }); !r.Healthy() {
		t.Errorf("the fake driver needs nothing: %+v", r)
	}
}

func TestTheEngineIsAsked(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "dr")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"Version": "20.10", "ApiVersion": "1.41"})
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	r := examine(t, good(), func(o *Options) { o.Chosen, o.DockerHost = "docker", "unix://"+filepath.Join(dir, "s") })
	if f := find(t, r, "docker", "docker engine"); f.Level != OK || f.Found != "20.10, API 1.41" || !r.Healthy() {
		t.Errorf("%+v", f)
	}
	_ = server.Close()
	<-done
}
