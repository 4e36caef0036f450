package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func unpack(t *testing.T, b []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "aurea-diagnose/")] = string(body)
	}
}

// TestNoSecretLeaves plants a canary in every place and form, and looks for it
// in everything that is packed.
func TestNoSecretLeaves(t *testing.T) {
	t.Parallel()
	const canary = "c4n4ry-7f3a9b1e5d"
	dir := t.TempDir()
	log := filepath.Join(dir, "worker.log")
	panics := filepath.Join(dir, "box", "abc")
	if err := os.MkdirAll(panics, 0o755); err != nil {
		t.Fatal(err)
	}
	text := "level=info msg=started\nauthorization: Bearer " + canary + "\n{\"token\":\"" + canary + "\"}\nAWS_SECRET_ACCESS_KEY=" + canary +
		"\npostgres://user:" + canary + "@db/x\npassword = '" + canary + "'\nX-Api-Key: " + canary + "\nghp_" + canary + "abcdefgh\n" +
		"-----BEGIN RSA PRIVATE KEY-----\n" + canary + "\n-----END RSA PRIVATE KEY-----\nlevel=info msg=\"still here\"\n"
	for _, path := range []string{log, filepath.Join(panics, "panic.log")} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(log, filepath.Join(dir, "link.log")); err != nil {
		t.Fatal(err)
	}
	const known = "known-secret-without-a-form"
	b := Bundle{
		Report:   Report{Version: "1"},
		Versions: map[string]string{"aurea": "1", "odd": "x " + known},
		Settings: map[string]string{"database_url": "postgres://u:" + canary + "@h/d"},
		Logs:     []string{log, filepath.Join(dir, "link.log"), filepath.Join(dir, "none.log")},
		Panics:   []string{filepath.Join(dir, "box", "*", "panic.log")},
		Secrets:  []string{known, ""},
	}
	var out bytes.Buffer
	if err := b.Write(&out); err != nil {
		t.Fatal(err)
	}
	files := unpack(t, out.Bytes())
	for name, body := range files {
		if strings.Contains(body, canary) || strings.Contains(body, known) {
			t.Errorf("%s holds the secret:\n%s", name, body)
		}
	}
	for _, name := range []string{"doctor.json", "versions.json", "settings.json", "logs/00-worker.log", "panics/abc-panic.log", "notes.txt"} {
		if files[name] == "" {
			t.Errorf("%s is missing", name)
		}
	}
	if !strings.Contains(files["logs/00-worker.log"], "still here") {
		t.Error("too much was hidden")
	}
	if !strings.Contains(files["notes.txt"], "link.log") || files["logs/01-link.log"] != "" {
		t.Errorf("a link was followed, or not mentioned: %q", files["notes.txt"])
	}
}

func TestOnlyTheEndOfALog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.log")
	if err := os.WriteFile(path, []byte("token=half-a-secret\nlast line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if body, err := tail(path, 15); err != nil || string(body) != "last line\n" {
		t.Errorf("%q, %v", body, err)
	}
}

func FuzzClean(f *testing.F) {
	f.Add([]byte("password=x Bearer abcdefghijk"), "secret")
	f.Fuzz(func(t *testing.T, body []byte, secret string) {
		clean := cleaner([]string{secret})(body)
		if len(secret) >= 4 && !strings.Contains(hidden, secret) && bytes.Contains(bytes.ReplaceAll(clean, []byte(hidden), nil), []byte(secret)) &&
			!bytes.Contains(bytes.ReplaceAll(body, []byte(secret), nil), []byte(secret)) && bytes.Contains(clean, []byte(secret)) {
			t.Errorf("%q is left in %q", secret, clean)
		}
	})
}
