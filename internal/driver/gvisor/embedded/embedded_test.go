package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func packed(t *testing.T, content string) (compressed []byte, digest string) {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	sum := sha256.Sum256([]byte(content))
	return w.EncodeAll([]byte(content), nil), hex.EncodeToString(sum[:]) + "\n"
}

func TestExtract(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	blob, digest := packed(t, "#!/bin/sh\n")
	path, err := extract(dir, "tool", blob, digest)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v", info.Mode())
	}
	// Again: the file stays the same one.
	if _, err := extract(dir, "tool", blob, digest); err != nil {
		t.Fatal(err)
	}
	again, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(info, again) {
		t.Error("it was extracted twice")
	}
}

func TestExtractMendsWhatWasChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	blob, digest := packed(t, "right")
	path, err := extract(dir, "tool", blob, digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("wrong"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := extract(dir, "tool", blob, digest); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "right" {
		t.Errorf("%q, %v", got, err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestExtractRefuses(t *testing.T) {
	t.Parallel()
	blob, digest := packed(t, "right")
	_, other := packed(t, "other")
	for name, c := range map[string]struct {
		blob   []byte
		digest string
	}{
		"another content": {blob, other},
		"no digest":       {blob, "../../etc"},
		"no archive":      {[]byte(strings.Repeat("x", 100)), digest},
		"half an archive": {blob[:len(blob)-3], digest},
	} {
		dir := t.TempDir()
		if path, err := extract(dir, "tool", c.blob, c.digest); err == nil {
			t.Errorf("%s: extracted to %s", name, path)
		}
	}
}
