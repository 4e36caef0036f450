package main

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// The generated programs must be those that the gVisor module would build:
// an upgrade of it without go generate would run with an old filter.
func TestGeneratedSeccompPrograms(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" {
		t.Skip("the programs are generated for amd64 only; elsewhere the sentry builds its own")
	}
	want, err := os.ReadFile("seccomp_amd64.go")
	if err != nil {
		t.Fatal(err)
	}
	// As the sentry is built: with cgo the programs have other names.
	cmd := exec.Command("go", "run", "./seccompgen")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	got, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("seccomp_amd64.go is not what the module would build; run go generate ./cmd/aurea-sentry")
	}
}
