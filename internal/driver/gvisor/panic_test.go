package gvisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// The last words of a sentry outlive its sandbox, and only a few of them do;
// what it merely warned of does not.
func TestLastWordsAreKept(t *testing.T) {
	t.Parallel()
	folder := stateDir(t)
	d := open(t, folder)
	t.Cleanup(func() { d.Close() })
	kept := func() int {
		entries, err := os.ReadDir(filepath.Join(folder, "panic"))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	// Folders as dead sandboxes leave them: no process is looked for.
	leave := func(id, words string) {
		dir := filepath.Join(folder, "box", id)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"panic.log": words, "process.json": `{"sentry":{"pid":1,"start":1}}`,
			"box.json": fmt.Sprintf(`{"handle":{"version":1,"driver":"gvisor","id":%q,"state":{"boot":"another"}}}`, id),
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Destroy(t.Context(), sandbox.Handle{Version: 1, Driver: "gvisor", ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	leave("warned", "W0101 something odd\n")
	if n := kept(); n != 0 {
		t.Errorf("%d warnings were kept", n)
	}
	for i := range 25 {
		leave(fmt.Sprintf("dead%d", i), "panic: oh no\n")
	}
	if n := kept(); n != 20 {
		t.Errorf("%d are kept", n)
	}
}
