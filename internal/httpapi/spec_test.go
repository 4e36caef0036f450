package httpapi_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/aurea-dev/aurea/internal/httpapi"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestSpecIsCommitted fails when the description of the API was changed by a
// change of the code and not committed with it: run with -update.
func TestSpecIsCommitted(t *testing.T) {
	t.Parallel()
	spec, err := httpapi.Spec()
	if err != nil {
		t.Fatal(err)
	}
	again, err := httpapi.Spec()
	if err != nil || !bytes.Equal(spec, again) {
		t.Fatalf("two descriptions of the same code differ (%v)", err)
	}
	file := filepath.Join("..", "..", "api", "openapi.yaml")
	if *update {
		if err := os.WriteFile(file, spec, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(spec, committed) {
		t.Errorf("%s is not what the code says; run: go test ./internal/httpapi -run TestSpecIsCommitted -update", file)
	}
}
