package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
)

// A crash while something is written leaves files aside, which the next start
// removes unless their writer lives; no name leads to half an image.
func TestCrash(t *testing.T) {
	t.Parallel()
	s := open(t)
	live, err := s.aside()
	if err != nil {
		t.Fatal(err)
	}
	defer live.drop()
	dead := filepath.Join(s.config.Dir, "tmp", "new-dead")
	if err := os.WriteFile(dead, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(s.config); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); !errors.Is(err, fs.ErrNotExist) {
		t.Error("what the dead left is there")
	}
	if _, err := os.Stat(live.Name()); err != nil {
		t.Error("what the living write is gone")
	}
	// A pull that is cut off at any byte of its blobs.
	from := serve(t)
	upload(t, from+"/tool:1", twoLayers(t))
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, err := s.Pull(ctx, from+"/tool:1", func(step Step) {
		if step.Doing == "unpack" {
			cancel(errStopped)
		}
	}); !errors.Is(err, errStopped) {
		t.Errorf("a pull that was cut off: %v", err)
	}
	if _, err := s.Find(from + "/tool:1"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if roots, err := os.ReadDir(filepath.Join(s.config.Dir, "roots")); err != nil || len(roots) != 0 {
		t.Error(roots, err)
	}
	if _, err := s.Pull(t.Context(), from+"/tool:1", nil); err != nil {
		t.Error(err)
	}
}

// kill -9 of a process that imports, at many moments.
func TestKilledImport(t *testing.T) {
	t.Parallel()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := open(t)
	for moment := range 6 {
		cmd := exec.Command(own, "-test.run=^TestVictim$")
		cmd.Env = append(os.Environ(), "AUREA_TEST_IMAGES="+s.config.Dir, fmt.Sprintf("AUREA_TEST_MOMENT=%d", moment))
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Fatalf("the victim lives: %s", out)
		}
		if _, err := Open(s.config); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(filepath.Join(s.config.Dir, "tmp")); err != nil || len(left) != 0 {
			t.Errorf("moment %d: %v, %v", moment, left, err)
		}
		list, err := s.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list {
			if got := rootOf(t, s, l.Name)["/big"]; len(got) != len("644 0 ")+4<<20 {
				t.Errorf("moment %d: %s has %d bytes", moment, l.Name, len(got))
			}
		}
	}
}

// TestVictim is the process that is killed.
func TestVictim(t *testing.T) {
	folder := os.Getenv("AUREA_TEST_IMAGES")
	if folder == "" {
		t.Skip("it is run by TestKilledImport")
	}
	var moment, steps int
	_, _ = fmt.Sscan(os.Getenv("AUREA_TEST_MOMENT"), &moment)
	s, err := Open(Config{Dir: folder, Architecture: "amd64", Host: testHost(t)})
	if err != nil {
		t.Fatal(err)
	}
	noise := bytes.Repeat([]byte(fmt.Sprintf("%d and more ", moment)), 4<<20/11+1)[:4<<20]
	_, err = s.ImportArchive(t.Context(), bytes.NewReader(layerOf(t, file("big", string(noise)))), "victim", "test", func(Step) {
		if steps++; steps > moment*2 {
			die()
		}
	})
	fmt.Println(err)
	die()
}

func die() {
	p, _ := os.FindProcess(os.Getpid())
	_ = p.Kill()
	select {}
}

func TestDamagedIndex(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "{", `{"version":2}`, `{"version":1,"images":null}`, "null"} {
		s := open(t)
		if err := os.WriteFile(s.indexPath(), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.List(); err == nil {
			t.Errorf("%q was read", body)
		}
		if err := s.Tag(t.Context(), "a", "b"); err == nil {
			t.Errorf("%q was changed", body)
		}
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"version":1,"images":{},"names":{"a:b":"sha256:x"},"aliases":{"c:d":"a:b","a:b":"c:d"}}`))
	f.Fuzz(func(_ *testing.T, body []byte) {
		if i, err := parseIndex(body); err == nil {
			for name := range i.Names {
				_, _ = i.find(name)
			}
			for name := range i.Aliases {
				_, _ = i.find(name)
			}
		}
	})
}
