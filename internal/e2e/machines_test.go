package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// upWithGVisor starts `aurea up` with real sandboxes and returns its address.
func upWithGVisor(t *testing.T) string {
	t.Helper()
	needGVisor(t)
	up, err := start([]string{"AUREA_POOL=", "AUREA_IMAGES=" + images}, nil,
		"up", "--data", filepath.Join(dataFolder(t), "data"), "--port", "0", "--bridge-port", "0", "--end")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if code, err := up.stop(); err != nil || code != 0 {
			t.Errorf("up ends with %d, %v", code, err)
		}
	})
	url, err := up.after("API     ") // said once a worker is ready
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// TestMachinesClient lets a client that was written for Fly's API test us as it
// tests Fly: over HTTP, from Node, with real sandboxes.
func TestMachinesClient(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		if inCI() {
			t.Fatal("the client needs Node: install nodejs")
		}
		t.Skip("left out: the client needs Node")
	}
	url := upWithGVisor(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Minute, errors.New("the client hangs"))
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "--test", "--test-reporter=tap", filepath.Join("testdata", "mobvibe", "client.test.mjs"))
	cmd.Env = append(os.Environ(), "MACHINES_API="+url)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("the client is not content: %v", err)
	}
}
