package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/aurea-dev/aurea/client"
)

// What a program calls its files leads nowhere but into the folder, whatever
// lies there.
func TestArtifactsStayInTheirFolder(t *testing.T) {
	t.Parallel()
	above := t.TempDir()
	folder, outside := filepath.Join(above, "left"), filepath.Join(above, "outside")
	for _, err := range []error{
		os.Mkdir(folder, 0o755), os.Mkdir(outside, 0o755), os.Mkdir(filepath.Join(folder, "inside"), 0o755),
		os.WriteFile(filepath.Join(outside, "file"), []byte("mine"), 0o600),
		os.WriteFile(filepath.Join(folder, "old"), []byte("something longer"), 0o600),
		os.Symlink(outside, filepath.Join(folder, "out")),
		os.Symlink("inside", filepath.Join(folder, "in")),
		os.Symlink(filepath.Join(outside, "file"), filepath.Join(folder, "link")),
		os.Symlink("old", filepath.Join(folder, "near")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	save := func(name string) error {
		return saveArtifacts(folder, &client.RunResult{Artifacts: map[string]string{name: "new"}})
	}
	for _, name := range []string{"", ".", "..", "../d", "a/../../d", "/etc/d", "out/d", "in/d", "link/d", "old/d", "inside/..", "a\x00b", `..\d`} {
		if err := save(name); err == nil {
			t.Errorf("%q was written", name)
		}
	}
	for _, name := range []string{"plain", "a/b/c", "a/b/d", "link", "near", "..."} {
		if err := save(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		about, err := os.Lstat(filepath.Join(folder, name))
		got, _ := os.ReadFile(filepath.Join(folder, name))
		if err != nil || !about.Mode().IsRegular() || string(got) != "new" {
			t.Errorf("%q is %v with %q, %v", name, about, got, err)
		}
	}
	for name, want := range map[string]string{filepath.Join(outside, "file"): "mine", filepath.Join(folder, "old"): "something longer"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v", name, got, err)
		}
	}
	if err := save("old"); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(folder, "old")); err != nil || string(got) != "new" {
		t.Errorf("an old one has %q, %v", got, err)
	}
	for _, dir := range []string{outside, filepath.Join(folder, "inside"), above} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 2 {
			t.Errorf("%s holds %v, %v", dir, entries, err)
		}
	}
	if err := saveArtifacts(folder, &client.RunResult{
		Artifacts: map[string]string{"b": "%"}, ArtifactInfo: map[string]client.RunArtifact{"b": {Encoding: "base64"}},
	}); err == nil {
		t.Error("what cannot be decoded was saved")
	}
}
