package config

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/fault"
)

var update = flag.Bool("update", false, "rewrite the generated part of the documentation")

func settingsFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "aurea.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	file := settingsFile(t, "port: 8001\n")
	for _, tc := range []struct {
		name   string
		src    Sources
		want   int
		origin Origin
	}{
		{"default", Sources{}, 8000, FromDefault},
		{"file over default", Sources{File: file}, 8001, FromFile},
		{"file named by the environment", Sources{Environ: []string{"AUREA_CONFIG=" + file}}, 8001, FromFile},
		{"environment over file", Sources{File: file, Environ: []string{"PORT=8002"}}, 8002, "environment PORT"},
		{"flag over environment", Sources{File: file, Environ: []string{"PORT=8002"}, Flags: map[string]string{"port": "8003"}}, 8003, "flag --port"},
		{"empty variable is not set", Sources{File: file, Environ: []string{"PORT="}}, 8001, FromFile},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.src.Role, tc.src.Root = Up, true
			c, err := Load(tc.src)
			if err != nil {
				t.Fatal(err)
			}
			if c.Port != tc.want || c.origins["port"] != tc.origin {
				t.Errorf("port %d from %q, want %d from %q", c.Port, c.origins["port"], tc.want, tc.origin)
			}
		})
	}
}

func TestAliases(t *testing.T) {
	t.Parallel()
	c, err := Load(Sources{Role: Worker, Root: true, Environ: []string{"MAX_CONCURRENT_JOBS=7", "SHUTDOWN_TIMEOUT_MS=1500"}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Concurrency != 7 || c.DrainTimeout != 1500*time.Millisecond || c.origins["concurrency"] != "environment MAX_CONCURRENT_JOBS" {
		t.Errorf("got %d, %s, %q", c.Concurrency, c.DrainTimeout, c.origins["concurrency"])
	}
	c, err = Load(Sources{Role: Worker, Root: true, Environ: []string{"MAX_CONCURRENT_JOBS=7", "AUREA_CONCURRENCY=2"}})
	if err != nil || c.Concurrency != 2 {
		t.Errorf("own name must win over its alias: %v, %v", c, err)
	}
}

func TestWhereDataLives(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		src        Sources
		data, base string
	}{
		{"root", Sources{Root: true}, "/var/lib/aurea", "/var/lib/aurea/sandbox"},
		{"user", Sources{Environ: []string{"HOME=/home/u"}}, "/home/u/.local/state/aurea", "/home/u/.local/state/aurea/sandbox"},
		{"user with XDG", Sources{Environ: []string{"HOME=/home/u", "XDG_STATE_HOME=/s"}}, "/s/aurea", "/s/aurea/sandbox"},
		{"flag moves the base too", Sources{Root: true, Flags: map[string]string{"data": "/d"}}, "/d", "/d/sandbox"},
		{"flag over file over environment", Sources{Root: true, Environ: []string{"AUREA_DATA=/e"}, Flags: map[string]string{"data": "/d"}}, "/d", "/d/sandbox"},
		{"base of its own", Sources{Root: true, Environ: []string{"AUREA_DATA=/e", "SANDBOX_BASE=/b"}}, "/e", "/b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.src.Role = Up
			c, err := Load(tc.src)
			if err != nil {
				t.Fatal(err)
			}
			if c.Data != tc.data || c.SandboxBase != tc.base {
				t.Errorf("data %s, base %s; want %s, %s", c.Data, c.SandboxBase, tc.data, tc.base)
			}
		})
	}
}

func TestOneClearLine(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		src  Sources
		want string
	}{
		{"unknown key", Sources{File: settingsFile(t, "prot: 1\n")}, `unknown key "prot"; did you mean "port"?`},
		{"unknown key like nothing", Sources{File: settingsFile(t, "watermelon: 1\n")}, `unknown key "watermelon"; ` + "`aurea config show`"},
		{"supervisor's own key in the file", Sources{File: settingsFile(t, "listen_fd: 3\n")}, "unknown key"},
		{"key without value", Sources{File: settingsFile(t, "port:\n")}, "port: has no value"},
		{"broken file", Sources{File: settingsFile(t, "port: [1\n")}, "read the settings file"},
		{"key twice", Sources{File: settingsFile(t, "port: 1\nport: 2\n")}, "read the settings file"},
		{"no file", Sources{File: "/does/not/exist.yaml"}, "does not exist"},
		{"bad duration", Sources{Environ: []string{"AUREA_LEASE_TERM=soon"}}, `AUREA_LEASE_TERM: "soon" is not a duration`},
		{"duration without unit", Sources{File: settingsFile(t, "lease_term: 30\n")}, `lease_term (in the file): "30" is not a duration`},
		{"bad duration by flag", Sources{Flags: map[string]string{"drain-timeout": "-1s"}}, "--drain-timeout: -1s is outside"},
		{"unknown variable", Sources{Environ: []string{"AUREA_LEASE_TERN=5s"}}, `did you mean "lease_term"?`},
		{"lease too short", Sources{Flags: map[string]string{"lease-term": "1s"}}, "outside 3s to 1h"},
		{"port too large", Sources{Environ: []string{"PORT=65536"}}, `PORT: "65536" is not a whole number`},
		{"port of another service", Sources{Environ: []string{"PORT=tcp://10.0.0.1:80"}}, "PORT: "},
		{"ports equal", Sources{Environ: []string{"PORT=9000"}}, "cannot both use 9000"},
		{"relative data", Sources{Flags: map[string]string{"data": "here"}}, "must be an absolute path"},
		{"bad size", Sources{Environ: []string{"AUREA_OUTPUT_LIMIT=much"}}, "is not a size"},
		{"bad level", Sources{Environ: []string{"LOG_LEVEL=loud"}}, "debug, info, warn, error"},
		{"bad map", Sources{Environ: []string{"AUREA_ROLES=Employee"}}, "is not a pair"},
		{"role twice", Sources{Environ: []string{"AUREA_ROLES=A=b,A=c"}}, "given twice"},
		{"another database", Sources{Environ: []string{"DATABASE_URL=mysql://u:secret@h/d"}}, "must be sqlite:PATH or postgres:"},
		{"refused", Sources{Environ: []string{"MAX_JOB_COST=512"}}, "MAX_JOB_COST: is set but refused: comes"},
		{"refused by prefix", Sources{Environ: []string{"ANOMALY_THRESHOLD=2"}}, "ANOMALY_THRESHOLD: is set but refused"},
		{"alias with a bad value", Sources{Environ: []string{"SHUTDOWN_TIMEOUT_MS=30s"}}, "SHUTDOWN_TIMEOUT_MS: "},
		{"no such place for blobs", Sources{Environ: []string{"AUREA_BLOBS=moon"}}, "AUREA_BLOBS: \"moon\" is not one of"},
		{"no bucket", Sources{Environ: []string{"AUREA_BLOBS=s3://"}}, "no name of a bucket"},
		{"bucket with a path in it", Sources{Environ: []string{"AUREA_BLOBS=s3://blobs/../x"}}, "cannot begin the names"},
		{"half of the credentials", Sources{Environ: []string{"AUREA_BLOBS=s3://blobs", "AWS_SECRET_ACCESS_KEY=secret"}}, "belong together"},
		{"endpoint with a path", Sources{Environ: []string{"AUREA_BLOBS=s3://blobs", "AWS_ENDPOINT_URL=http://h/x"}}, "must have no path"},
		{"endpoint that is none", Sources{Environ: []string{"AUREA_BLOBS=s3://blobs", "AWS_ENDPOINT_URL_S3=ftp://h"}}, "is not a URL"},
		{"stop word", Sources{Environ: []string{"AUREA_ON_STOP=perhaps"}}, "end, keep"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.src.Role, tc.src.Root = Up, true
			_, err := Load(tc.src)
			if err == nil {
				t.Fatal("was accepted")
			}
			if !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") || !fault.Is(err, fault.Invalid) {
				t.Errorf("%v (%v), want one line with %q", err, fault.KindOf(err), tc.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%v shows a secret", err)
			}
		})
	}
}

func TestURLsAreChecked(t *testing.T) {
	t.Parallel()
	for _, u := range []string{"manager:8000", "ftp://h", "http://", "http://u:p@h", "http://h?x=1", "://"} {
		if _, err := Load(Sources{Role: Worker, Root: true, Environ: []string{"MANAGER_URL=" + u}}); err == nil {
			t.Errorf("%q was accepted as MANAGER_URL", u)
		}
		if _, err := Load(Sources{Role: Client, Flags: map[string]string{"server": u}}); err == nil {
			t.Errorf("%q was accepted as --server", u)
		}
	}
}

// A client must work whatever the shell holds for the servers.
func TestClientReadsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	c, err := Load(Sources{Role: Client, Environ: []string{"PORT=nonsense", "DATABASE_URL=postgres://x", "SANDBOX_CPUS=1", "AUREA_SERVER=http://h:1"}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Server != "http://h:1" {
		t.Errorf("server %q", c.Server)
	}
}

// A bridge runs as a user that may have no home at all.
func TestBridgeNeedsNoDataFolder(t *testing.T) {
	t.Parallel()
	if _, err := Load(Sources{Role: Bridge}); err != nil {
		t.Error(err)
	}
	if _, err := Load(Sources{Role: Manager}); err == nil {
		t.Error("a manager without a place for its data was accepted")
	}
}

func TestNotedVariablesDoNotStop(t *testing.T) {
	t.Parallel()
	c, err := Load(Sources{Role: Up, Root: true, Environ: []string{"JWT_SECRET=s3cret", "DAYTONA_API_KEY=k3y", "FLY_REGION=ams"}})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(c.Notes(), "\n")
	if len(c.Notes()) != 3 || strings.Contains(all, "s3cret") || strings.Contains(all, "k3y") {
		t.Errorf("notes: %s", all)
	}
}

func TestFileHoldsMapsAndLists(t *testing.T) {
	t.Parallel()
	c, err := Load(Sources{Role: "", Root: true, File: settingsFile(t, `
roles:
  Employee: worker_a
  Lead.Reviewer: model_b
worker_models: [a, b]
output_limit: 1GiB
log_level: debug
`)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"Employee": "worker_a", "Lead.Reviewer": "model_b"}, c.Roles); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a", "b"}, c.WorkerModels); diff != "" || c.OutputLimit != 1<<30 {
		t.Error(diff, c.OutputLimit)
	}
}

func TestShowHidesSecrets(t *testing.T) {
	t.Parallel()
	c, err := Load(Sources{Role: "", Root: true, Environ: []string{"AUREA_KEY=aurea_admin_topsecret", "AWS_SECRET_ACCESS_KEY=topsecret", "AWS_SESSION_TOKEN=topsecret"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range c.Show() {
		if strings.Contains(e.Value, "topsecret") {
			t.Errorf("%s shows the secret", e.Key)
		}
		if e.Key == "key" && (e.Value != "(hidden)" || e.Origin != "environment AUREA_KEY") {
			t.Errorf("key is shown as %q from %q", e.Value, e.Origin)
		}
		if e.Origin == "" {
			t.Errorf("%s has no origin", e.Key)
		}
	}
}

// What a role gets from the supervisor is what it loads again.
func TestEnvironRoundTrip(t *testing.T) {
	t.Parallel()
	c, err := Load(Sources{Role: Up, Root: true, Environ: []string{
		"DATABASE_URL=sqlite:/d/x.db", "AUREA_ROLES=A=b,C=d", "AUREA_OUTPUT_LIMIT=3KiB", "HOST=0.0.0.0", "WORKER_MODELS=m,n", "LOG_LEVEL=warn",
		"AUREA_BLOBS=s3://blobs/of/aurea/", "AWS_ACCESS_KEY_ID=id", "AWS_SECRET_ACCESS_KEY=key", "AWS_DEFAULT_REGION=r", "AUREA_S3_PATH_STYLE=on",
	}})
	if err != nil {
		t.Fatal(err)
	}
	worker := c.Environ(Worker)
	if slices.ContainsFunc(worker, func(v string) bool {
		return strings.HasPrefix(v, "DATABASE_URL=") || strings.HasPrefix(v, "AUREA_KEY=") || strings.HasPrefix(v, "AUREA_ROLES=") || strings.HasPrefix(v, "AWS_")
	}) {
		t.Errorf("the worker gets what it does not need: %q", worker)
	}
	m, err := Load(Sources{Role: Manager, Root: true, Environ: c.Environ(Manager)})
	if err != nil {
		t.Fatal(err)
	}
	if m.DatabasePath() != "/d/x.db" || m.Host != "0.0.0.0" || m.Roles["C"] != "d" || m.LogLevel != c.LogLevel {
		t.Errorf("manager loads %+v", m)
	}
	if bucket, prefix := m.Bucket(); bucket != "blobs" || prefix != "of/aurea" || m.S3 != c.S3 || m.S3.SecretKey.Reveal() != "key" || m.S3.Region != "r" {
		t.Errorf("manager loads the bucket %s/%s and %+v", bucket, prefix, m.S3)
	}
	w, err := Load(Sources{Role: Worker, Root: true, Environ: worker})
	if err != nil {
		t.Fatal(err)
	}
	if w.OutputLimit != 3<<10 || !slices.Equal(w.WorkerModels, []string{"m", "n"}) || w.SandboxBase != c.SandboxBase {
		t.Errorf("worker loads %+v", w)
	}
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "::1": true, "localhost": true, "LocalHost": true,
		"0.0.0.0": false, "::": false, "192.0.2.1": false, "example.org": false, "127.0.0.1.example.org": false, "": false,
	} {
		if got := (&Config{Host: host}).Loopback(); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
	if got := (&Config{Host: "::"}).LocalURL(80); got != "http://127.0.0.1:80" {
		t.Error(got)
	}
	if got := (&Config{Host: "::1"}).LocalURL(80); got != "http://[::1]:80" {
		t.Error(got)
	}
}

func TestLoadKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		content string
		want    string
	}{
		"good": {"aurea_x\n", "aurea_x"}, "empty": {"\n", ""}, "two lines": {"a\nb\n", ""}, "huge": {"aurea_" + strings.Repeat("x", 5000), ""},
		"another secret": {"token-of-somebody-else\n", ""}, "below another": {"root:x:0:0\naurea_x\n", ""},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := (&Config{KeyFile: path}).LoadKey()
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := (&Config{KeyFile: filepath.Join(dir, "none")}).LoadKey(); err == nil {
		t.Error("a missing file was accepted")
	}
	for _, path := range []string{"/dev/zero", dir} {
		if _, err := (&Config{KeyFile: path}).LoadKey(); err == nil {
			t.Errorf("%s was accepted", path)
		}
	}
}

func TestBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Bytes{"0": 0, "17": 17, "1k": 1 << 10, "64KiB": 64 << 10, "10 MB": 10 << 20, "4G": 4 << 30, "2TiB": 2 << 40} {
		got, err := ParseBytes(text)
		if err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
		again, err := ParseBytes(got.String())
		if err != nil || again != got {
			t.Errorf("%q is written as %q", text, got)
		}
	}
	for _, text := range []string{"", "k", "-1", "1.5G", "9999999999T", "0x10", "1 2"} {
		if n, err := ParseBytes(text); err == nil {
			t.Errorf("%q is read as %d", text, n)
		}
	}
}

func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"1", "64KiB", "9223372036854775807", "-1k", "8388608T"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseBytes(text)
		if err != nil {
			return
		}
		if n < 0 {
			t.Fatalf("%q is read as %d", text, n)
		}
		if again, err := ParseBytes(n.String()); err != nil || again != n {
			t.Fatalf("%q is written as %q", text, n)
		}
	})
}

func FuzzFile(f *testing.F) {
	f.Add("port: 1\nroles: {a: b}\n")
	f.Add("port: {a: [b]}\nworker_models: [1]\n")
	f.Add("\x00")
	f.Add("&a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(Sources{File: path, Root: true}); err != nil && strings.Contains(err.Error(), "\n") {
			t.Fatalf("error is not one line: %q", err)
		}
	})
}

// The password of a database is shown to nobody but the manager.
func TestTheDatabasesPasswordIsNotShown(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"postgres://u:verysecret@h/d", "postgres://h/d?user=u&password=verysecret", "postgresql://u:verysecret@[::1]:5432/d"} {
		c, err := Load(Sources{Role: Up, Environ: []string{"AUREA_DATA=/data", "DATABASE_URL=" + address}})
		if err != nil {
			t.Fatal(err)
		}
		for _, shown := range c.Show() {
			if strings.Contains(shown.Value, "verysecret") {
				t.Errorf("%s is shown as %q", shown.Key, shown.Value)
			}
		}
		if !c.Shared() || !slices.Contains(c.Environ(Manager), "DATABASE_URL="+address) {
			t.Errorf("the manager does not get %s", address)
		}
		for _, role := range []Role{Worker, Bridge} {
			if strings.Contains(strings.Join(c.Environ(role), " "), "verysecret") {
				t.Errorf("the %s gets the password", role)
			}
		}
	}
}

// The supervisor hands settings on as text: none must stay none.
func TestCountsAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0", "python=2", "bash=1,python=0"} {
		var m map[string]int
		v := countsValue{&m, 64}
		if err := v.Set(text); err != nil || v.String() != text {
			t.Errorf("%q became %q, %v", text, v.String(), err)
		}
	}
	for _, text := range []string{"python", "python=-1", "python=65", "python=x", "=1"} {
		var m map[string]int
		if err := (countsValue{&m, 64}).Set(text); err == nil {
			t.Errorf("%q was taken as %v", text, m)
		}
	}
}

// No pool can be said as 0 and as nothing, in every way in which it is set; and
// a child is told so too.
func TestAnEmptyPoolIsNone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "aurea.yaml")
	if err := os.WriteFile(file, []byte("pool: {python: 3}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, src := range map[string]Sources{
		"variable": {File: file, Environ: []string{"AUREA_POOL="}}, "zero": {Environ: []string{"AUREA_POOL=0"}},
		"flag": {Environ: []string{"AUREA_POOL=python=1"}, Flags: map[string]string{"pool": ""}},
	} {
		src.Role, src.Root = Worker, true
		c, err := Load(src)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Load(Sources{Role: Worker, Root: true, Environ: c.Environ(Worker)})
		if err != nil || len(c.Pool) != 0 || len(again.Pool) != 0 {
			t.Errorf("%s: the pool is %v, and a child's %v, %v", name, c.Pool, again.Pool, err)
		}
	}
	c, err := Load(Sources{Role: Worker, Root: true, File: file, Environ: []string{"AUREA_CONCURRENCY="}})
	if err != nil || c.Pool["python"] != 3 || c.Concurrency != 4 {
		t.Errorf("the pool is %v of %d, %v", c.Pool, c.Concurrency, err)
	}
}
