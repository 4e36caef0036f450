package image

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// aHost makes a small host with what must not be seen.
func aHost(t testing.TB) Host {
	t.Helper()
	h := testHost(t)
	for name, content := range map[string]string{
		"usr/bin/python3":              "python",
		"usr/bin/sudo":                 "sudo",
		"usr/lib/libc.so":              "libc",
		"usr/lib/x86_64-linux-gnu/big": strings.Repeat("b", 3000),
		"usr/lib/huge/data":            strings.Repeat("h", 5000),
		"usr/lib/large/data":           strings.Repeat("l", 4000),
		"usr/lib/secret":               "secret",
		"usr/lib/closed/x":             "closed",
		"usr/share/doc/x":              "doc",
		"usr/share/locale/de/x":        "German",
		"usr/share/locale/en_GB/x":     "English",
		"usr/local/etc/token":          "token",
		"etc/passwd":                   "hans:x:1001:1001:Hans Host:/home/hans:/bin/bash\n",
		"etc/shadow":                   "hans:$6$",
		"etc/hostname":                 "very-secret-host",
		"etc/hosts":                    "10.0.0.1 very-secret-host",
		"etc/ssh/ssh_host_key":         "key",
		"etc/ssl/private/key.pem":      "private",
		"etc/ssl/certs/ca.pem":         "public",
		"etc/ld.so.cache":              "cache",
		"etc/npmrc":                    "token",
		"etc/resolv.conf":              "nameserver 10.0.0.1",
		"home/hans/x":                  "home",
		"var/lib/dpkg/status":          "packages",
	} {
		full := filepath.Join(h.Top, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"bin": "usr/bin", "lib": "usr/lib", "etc/alternatives/py": "/usr/bin/python3", "usr/bin/out": "../../../etc/shadow"} {
		full := filepath.Join(h.Top, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, full); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(h.Top, "usr/bin/python3"), filepath.Join(h.Top, "usr/bin/python3.11")); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{"usr/bin/sudo": 0o755 | fs.ModeSetuid, "usr/lib/secret": 0o640, "usr/lib/closed": 0o750, "usr/bin/python3": 0o755} {
		if err := os.Chmod(filepath.Join(h.Top, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func TestHost(t *testing.T) {
	t.Parallel()
	h := aHost(t)
	var said bytes.Buffer
	s := open(t, func(c *Config) { c.Host, c.Logger = h, slog.New(slog.NewTextHandler(&said, nil)) })
	got := rootOf(t, s, "host")
	owner := strings.Fields(got["/usr/bin/sudo"])[1]
	for path, want := range map[string]string{
		"/usr/bin/python3": "755 " + owner + " python", "/usr/bin/python3.11": "755 " + owner + " python", "/usr/bin/sudo": "755 " + owner + " sudo",
		"/bin": "777 " + owner + " -> usr/bin", "/etc/ssl/certs/ca.pem": "644 " + owner + " public", "/etc/ld.so.cache": "644 " + owner + " cache",
		"/etc/alternatives/py": "777 " + owner + " -> /usr/bin/python3", "/usr/share/locale/en_GB/x": "644 " + owner + " English",
		"/etc/hostname": "644 0 sandbox\n", "/.aurea": "755 0 /", "/workspace": "755 1000 /", "/var/tmp": "1777 0 /",
	} {
		if got[path] != want {
			t.Errorf("%s is %q, not %q", path, got[path], want)
		}
	}
	for path, content := range got {
		for _, secret := range []string{"hans", "Hans", "very-secret", "$6$", "key", "private", "token", "closed", "10.0.0.1", "German", " doc", " home", " secret"} {
			if strings.Contains(content, secret) {
				t.Errorf("%s shows %q", path, content)
			}
		}
	}
	if n := strings.Count(said.String(), "percent=100"); n != 1 {
		t.Errorf("the log says %d times that it is done:\n%s", n, said.String())
	}
	r, err := s.Find("host")
	if err != nil || r.LeftCount != 2 {
		t.Errorf("%+v, %v", r.Left, err)
	}
	if _, err := s.Push(t.Context(), "host", "127.0.0.1:1/host-copy:1", nil); !fault.Is(err, fault.Conflict) {
		t.Errorf("push of the host: %v", err)
	}
}

// The view is fixed until it is taken again, and taken again only when the host
// has changed.
func TestHostChanges(t *testing.T) {
	t.Parallel()
	h := aHost(t)
	s, ctx := open(t, func(c *Config) { c.Host = h }), t.Context()
	stale := func(want bool) {
		t.Helper()
		if got, err := s.Stale(); err != nil || got != want {
			t.Errorf("the image is stale: %t, %v", got, err)
		}
	}
	stale(false) // there is none
	before, err := s.Resolve(ctx, "")
	if err != nil || before.Name != "host" {
		t.Fatal(before, err)
	}
	if r, err := s.Pull(ctx, "host", nil); err != nil || r.Digest != before.Digest {
		t.Errorf("%s, %v", r.Digest, err)
	}
	if err := os.WriteFile(filepath.Join(h.Top, "usr/bin/new"), []byte("new"), 0o755); err != nil {
		t.Fatal(err)
	}
	stale(true)
	if still, err := s.Resolve(ctx, "host"); err != nil || still.Root != before.Root {
		t.Error(still, err)
	}
	running, err := os.Open(before.Root)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prepare(ctx, nil, ""); err != nil {
		t.Fatal(err)
	}
	stale(false)
	after, err := s.Resolve(ctx, "host")
	if err != nil || after.Digest == before.Digest {
		t.Fatal(after, err)
	}
	if _, err := os.Stat(before.Root); err != nil {
		t.Errorf("a sandbox runs from it: %v", err)
	}
	_ = running.Close()
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(h.Top, "var/lib/dpkg/status"), later, later); err != nil {
		t.Fatal(err)
	}
	if same, err := s.TakeHost(ctx, nil); err != nil || same.Digest != after.Digest {
		t.Errorf("nothing but a sign has changed: %v, %v", same, err)
	}
	if _, err := s.GC(ctx, nil, false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(before.Root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nobody runs from it: %v", err)
	}
	if got := look(t, after.Root)["/usr/bin/new"]; !strings.HasSuffix(got, " new") {
		t.Error(got)
	}
}

func TestLargeHost(t *testing.T) {
	t.Parallel()
	h := aHost(t)
	h.Most = 8000
	s := open(t, func(c *Config) { c.Host = h })
	got := rootOf(t, s, "host")
	if _, ok := got["/usr/lib/huge/data"]; ok {
		t.Error("the largest is there")
	}
	if got["/usr/lib/large/data"] == "" || got["/usr/lib/x86_64-linux-gnu/big"] == "" {
		t.Error("too much is missing")
	}
	r, err := s.Find("host")
	if err != nil || !strings.Contains(r.Left[len(r.Left)-1].Path, "/usr/lib/huge") {
		t.Errorf("%+v, %v", r.Left, err)
	}
}

func TestDefaultImage(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *Config) { c.Default = "mine:1"; c.Host = aHost(t) })
	if got, err := s.Resolve(t.Context(), ""); err != nil || got.Name != "host" {
		t.Fatal(got, err)
	}
	if _, err := s.ImportArchive(t.Context(), bytes.NewReader(layerOf(t, file("a", "1"))), "mine:1", "test", nil); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Resolve(t.Context(), ""); err != nil || got.Name != "mine:1" {
		t.Fatal(got, err)
	}
	if _, err := Open(Config{Dir: t.TempDir(), Default: "Not A Name"}); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
}

// TestAliasesStandIn asks for images that are not here, and for one that is.
func TestAliasesStandIn(t *testing.T) {
	t.Parallel()
	const foreign, other = "registry.fly.io/mobvibe-sandbox:latest", "thing:1"
	s := open(t, func(c *Config) {
		c.Host = aHost(t)
		c.Aliases = map[string]string{foreign: DefaultAlias, other: "host"}
	})
	for _, name := range []string{foreign, other} {
		i, err := s.Resolve(t.Context(), name)
		if err != nil || i.Name != HostName {
			t.Fatalf("%s is %+v, %v", name, i, err)
		}
		if r, err := s.Find(name); err != nil || r.Digest != i.Digest {
			t.Errorf("%s is found as %+v, %v", name, r, err)
		}
	}
	if _, err := s.Resolve(t.Context(), "nothing:1"); !fault.Is(err, fault.NotFound) {
		t.Errorf("an image that nothing stands in for: %v", err)
	}
	host := serve(t)
	upload(t, host+"/real:1", made(t, nil, layerOf(t, file("real", "x"))))
	s = open(t, func(c *Config) { c.Aliases = map[string]string{host + "/real:1": "host"} })
	if _, err := s.Pull(t.Context(), host+"/real:1", nil); err != nil {
		t.Fatal(err)
	}
	if got := rootOf(t, s, host+"/real:1"); got["/real"] == "" && got["real"] == "" {
		t.Errorf("an image that is here is hidden by its alias: %v", got)
	}
	if _, err := Open(Config{Dir: t.TempDir(), Aliases: map[string]string{"Not A Name": "host"}}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a bad name: %v", err)
	}
}
