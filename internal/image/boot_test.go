package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/driver/gvisor"
	"github.com/aurea-dev/aurea/internal/image"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// program is what runs in the sandbox. It says who it is, what it sees, and
// whether what must not work does.
const program = `package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	fmt.Println("uid", os.Getuid(), os.Getgid())
	text, err := os.ReadFile("/data/hard")
	fmt.Println("hard", string(text), err)
	_, err = os.Stat("/gone")
	fmt.Println("gone", os.IsNotExist(err))
	link, err := os.ReadFile("/data/link")
	fmt.Println("link", string(link), err)
	fmt.Println("root", os.WriteFile("/usr.txt", nil, 0o644) != nil)
	fmt.Println("workspace", os.WriteFile("/workspace/x", []byte("x"), 0o644))
	fmt.Println("tmp", os.WriteFile("/tmp/x", []byte("x"), 0o644))
	info, err := os.Stat("/bin/program")
	fmt.Println("mode", info.Mode(), err)
	list, _ := os.ReadDir("/many")
	fmt.Println("many", len(list))
	passwd, _ := os.ReadFile("/etc/passwd")
	fmt.Println("passwd", strings.Count(string(passwd), "\n"))
}
`

// build builds a static binary from a package, or from a source.
func build(t *testing.T, dir, name, what string) string {
	t.Helper()
	out := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, what)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, said)
	}
	return out
}

func rootTar(t *testing.T, dir string) io.Reader {
	t.Helper()
	source := filepath.Join(dir, "program.go")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(build(t, dir, "program", source))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, content string) {
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, content)
	}
	add(tar.Header{Name: "bin/program", Mode: 0o4755, Typeflag: tar.TypeReg}, string(binary))
	add(tar.Header{Name: "etc/passwd", Mode: 0o644, Typeflag: tar.TypeReg}, "root:x:0:0::/:/bin/sh\n")
	add(tar.Header{Name: "data/file", Mode: 0o644, Typeflag: tar.TypeReg}, "content")
	add(tar.Header{Name: "data/hard", Linkname: "data/file", Typeflag: tar.TypeLink}, "")
	add(tar.Header{Name: "data/link", Linkname: "/data/../data/file", Typeflag: tar.TypeSymlink}, "")
	for i := range 3000 {
		add(tar.Header{Name: fmt.Sprintf("many/%d", i), Mode: 0o644, Typeflag: tar.TypeReg}, "")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// run runs a command in a fresh sandbox.
func run(t *testing.T, d sandbox.Driver, name string, command ...string) string {
	t.Helper()
	ctx := context.Background()
	id, err := sandbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	box, err := d.Create(ctx, sandbox.Spec{ID: id, Image: name}, func(sandbox.Handle) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Destroy(ctx, box.Handle()); err != nil {
			t.Error(err)
		}
	}()
	p, err := box.Exec(ctx, sandbox.ExecSpec{ID: "run", Command: command})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for {
		f, err := p.Next(ctx)
		if err != nil {
			break
		}
		out.Write(f.Data)
	}
	if exit, err := p.Wait(ctx); err != nil || exit.Code != 0 {
		t.Errorf("%v: %+v, %v, %s", command, exit, err, out.String())
	}
	return out.String()
}

// checkInUse checks that a root stays as long as a sandbox runs from it.
func checkInUse(t *testing.T, d sandbox.Driver, store *image.Store) {
	t.Helper()
	ctx := context.Background()
	box, err := d.Create(ctx, sandbox.Spec{ID: "inuse", Image: "boot:1"}, func(sandbox.Handle) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Remove(ctx, "boot:1"); err != nil {
		t.Error(err)
	}
	if got, err := store.GC(ctx, nil, false); err != nil || got.InUse != 1 || got.Roots != 0 {
		t.Errorf("while it runs: %+v, %v", got, err)
	}
	if err := d.Destroy(ctx, box.Handle()); err != nil {
		t.Error(err)
	}
	if got, err := store.GC(ctx, nil, false); err != nil || got.InUse != 0 || got.Roots != 1 {
		t.Errorf("after it: %+v, %v", got, err)
	}
}

// A root that the store made starts in gVisor, and is what the layers said.
func TestBoot(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("making gVisor sandboxes needs root")
		}
		t.Skip("making gVisor sandboxes needs root")
	}
	dir, err := os.MkdirTemp("", "boot") // short: sockets have names
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	sentry := build(t, dir, "aurea-sentry", "github.com/aurea-dev/aurea/cmd/aurea-sentry")
	guest := build(t, dir, "aurea-guest", "github.com/aurea-dev/aurea/cmd/aurea-guest")
	host := image.DefaultHost()
	host.Trees = []string{"bin", "sbin", "lib", "lib64", "usr/lib64"}
	for _, pattern := range []string{"bin/sh", "bin/dash", "bin/bash", "bin/id", "bin/cat", "bin/wc", "lib/ld-*", "lib/lib[a-z]*.so*", "lib/*-linux-gnu/ld-*", "lib/*-linux-gnu/lib[cpst]*.so*"} {
		found, err := filepath.Glob("/usr/" + pattern) // a few, so that the test is quick
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			host.Trees = append(host.Trees, strings.TrimPrefix(name, "/"))
		}
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	store, err := image.Open(image.Config{Dir: filepath.Join(dir, "images"), Host: host, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.ImportArchive(t.Context(), rootTar(t, dir), "boot:1", "test", nil); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "s")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := gvisor.New(t.Context(), gvisor.Config{StateDir: state, Sentry: sentry, Guest: guest, Images: store, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })

	got := run(t, d, "boot:1", "/bin/program")
	want := "uid 1000 1000\nhard content <nil>\ngone true\nlink content <nil>\nroot true\nworkspace <nil>\ntmp <nil>\nmode -rwxr-xr-x <nil>\nmany 3000\npasswd 3\n"
	if got != want {
		t.Errorf("it says\n%s", got)
	}
	checkInUse(t, d, store)
	if got := run(t, d, "host", "sh", "-c", "id -un; cat /etc/hostname; cat /etc/shadow 2>/dev/null | wc -l"); strings.Join(strings.Fields(got), " ") != "sandbox sandbox 0" {
		t.Errorf("the host's image says %q", got)
	}
}
