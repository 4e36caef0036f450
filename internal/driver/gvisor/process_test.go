package gvisor

import (
	"os"
	"os/exec"
	"testing"

	"github.com/aurea-dev/aurea/internal/spawn"
)

func TestAProcessThatEnds(t *testing.T) {
	t.Parallel()
	for stat, want := range map[string]bool{
		"1 (a) S 1 1 1 0 -1 4194304 1":            false,
		"1 (a) R 1 1 1 0 -1 4194308 1":            true,
		"1 (x) Z 1 1 1 0 -1 4 (y) R 1 1 1 0 -1 0": false, // a name can be made to look like all of it
		"1 (a) R 1":               false,
		"":                        false,
		"1 (a) R 1 1 1 0 -1 many": false,
	} {
		if got := exiting([]byte(stat)); got != want {
			t.Errorf("%q: %v", stat, got)
		}
	}
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := spawn.FindProcess(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	h, err := openProcess(p)
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	if h.ending() {
		t.Error("it lives")
	}
	if err := c.Process.Signal(os.Kill); err != nil {
		t.Fatal(err)
	}
	h.wait()
	if !h.ending() {
		t.Error("it is dead, and nobody has waited for it")
	}
	_ = c.Wait()
	if !h.ending() {
		t.Error("it is gone")
	}
}
