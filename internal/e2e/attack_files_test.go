package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// nasty fills a workspace with what trips those who collect it. HOST is a file
// of the host's that nobody in a sandbox may see.
const nasty = `
import os, socket
os.makedirs("n", exist_ok=True); os.chdir("n")
for name, to in {"shadow": "/etc/shadow", "root": "/proc/self/root", "one": "/proc/1/root", "mem": "/proc/self/mem", "environ": "/proc/1/environ", "fd": "/proc/self/fd/0",
                 "zero": "/dev/zero", "loop": "loop", "up": "../../../../../..", "host": "HOST", "rooted": "/proc/self/root" + "HOST", "dot": ".", "long": "/" + "a/" * 1500}.items():
    os.symlink(to, name)
os.mkfifo("fifo")
s = socket.socket(socket.AF_UNIX); s.bind("socket")
with open("sparse", "wb") as f: f.truncate(1 << 40)
with open("plain", "w") as f: f.write("plain")
os.link("plain", "hard")
for b in [b"new\nline", b"\xff\xfe", b"back\\slash", b"CON", b"-rf", b"a" * 255, "e\u0301".encode(), "\u00e9".encode(), b"\x1b[2J"]:
    with open(b, "wb") as f: f.write(b"x")
os.chmod("plain", 0o4755)
d = "deep"; os.mkdir(d)
here = os.open(d, os.O_RDONLY)
for i in range(600):
    os.mkdir("d", dir_fd=here); here = os.open("d", os.O_RDONLY, dir_fd=here)
os.mkdir("wide")
for i in range(12000): open("wide/%05d" % i, "w").close()
`

// swaps changes what stands under names as fast as it can, and says when it began.
const swaps = `
import os, itertools
os.makedirs("s/real", exist_ok=True); os.chdir("s")
open("real/f", "w").write("real")
print("began", flush=True)
for i in itertools.count():
    for kind in range(5):
        for name in ("what", "tmp"):
            try: os.remove(name)
            except OSError: pass
        if kind == 0: os.symlink("real/f", "tmp")
        if kind == 1: os.symlink("HOST", "tmp")
        if kind == 2: os.mkfifo("tmp")
        if kind == 3: os.symlink("/dev/zero", "tmp")
        if kind == 4: open("tmp", "w").write("file")
        os.rename("tmp", "what")
        with open("grows", "ab" if i % 50 else "wb") as f: f.write(b"g" * 4096)
`

// TestHostileFiles reads, lists, copies and packs what hostile code made, while
// it changes it, and puts hostile archives in. Nothing hangs, nothing of the
// host is seen, and nothing leads out of where it was put.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	f := newFort(t, false)
	canary := filepath.Join(f.folder, "canary")
	if err := os.WriteFile(canary, []byte("the host's own secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	neighbour := f.neighbour()
	x := f.sandbox(map[string]any{"files": map[string]string{"nasty.py": strings.ReplaceAll(nasty, "HOST", canary), "swaps.py": strings.ReplaceAll(swaps, "HOST", canary)}, "memory_limit": "512m"})
	f.run(x, "python3 nasty.py")
	files := x.path() + "/files"
	clean := func(what string, a answer) {
		t.Helper()
		if bytes.Contains(a.body, []byte("the host's own")) || bytes.Contains(a.body, []byte("my own")) || bytes.Contains(a.body, []byte("root:$")) {
			t.Errorf("%s shows what is not the sandbox's: %.200q", what, a.body)
		}
	}
	t.Run("C33 C34 C44 reading", func(t *testing.T) {
		for _, name := range []string{"shadow", "root", "one", "mem", "environ", "fd", "zero", "loop", "up", "host", "rooted", "long", "fifo", "socket", "root" + canary, "one/etc/shadow", "up/etc/shadow", "fd/../environ"} {
			p := "?path=/workspace/n/" + name
			clean(name, f.demand(t, "read "+name, []int{403, 404, 409, 422}, http.MethodGet, files+"/content"+p, ""))
			clean(name, f.demand(t, "look at "+name, []int{200, 403, 404, 409, 422}, http.MethodGet, files+"/stat"+p, ""))
			f.demand(t, "copy "+name, []int{204, 403, 404, 409, 422}, http.MethodPost, files+"/copy", fmt.Sprintf(`{"from":"/workspace/n/%s","to":"/workspace/copy of %d"}`, name, len(name)))
		}
		paths := []string{"/proc/self/root" + canary, "/proc/1/root" + canary, canary, "/proc/self/environ", "/proc/1/environ", "/proc/1/mem", "/proc/kcore", "/proc/kmsg", "/sys/kernel/notes", "/dev/mem", "/dev/zero", "/dev/tty", "/proc/self/fd/3", "/proc/1/fd/3", "/etc/shadow", "/workspace/../../../.." + canary}
		for _, p := range paths {
			clean(p, f.demand(t, "read "+p, []int{403, 404, 409, 422}, http.MethodGet, files+"/content?path="+p, ""))
		}
		for _, p := range paths { // what can be written is the sandbox's own
			f.demand(t, "write "+p, []int{403, 404, 409, 422, 200}, http.MethodPut, files+"/content?path="+p, "x")
		}
		if text, err := os.ReadFile(canary); err != nil || string(text) != "the host's own secret" {
			t.Fatalf("the host's file is %q, %v", text, err)
		}
	})
	t.Run("C34 a sparse terabyte", func(t *testing.T) {
		a := f.demand(t, "the end of it", []int{206}, http.MethodGet, files+"/content?path=/workspace/n/sparse", "", "Range", "bytes=-100")
		if len(a.body) != 100 {
			t.Errorf("%d bytes", len(a.body))
		}
		f.cut(t, files+"/content?path=/workspace/n/sparse", 64<<20)
		f.demand(t, "a patch of it", []int{409, 422}, http.MethodPost, files+"/patch", "--- a/n/sparse\n+++ b/n/sparse\n@@ -1 +1 @@\n-x\n+y\n")
	})
	t.Run("C32 names and large listings", func(t *testing.T) {
		for _, q := range []string{"/workspace/n&depth=256&limit=10000", "/workspace/n/wide&limit=10000", "/&depth=256&limit=10000", "/proc&depth=5&limit=10000", "/workspace/n/deep&depth=256"} {
			a := f.demand(t, "list "+q, []int{200, 403, 422}, http.MethodGet, files+"?path="+q, "")
			if len(a.body) > 16<<20 {
				t.Errorf("list %s: %d bytes", q, len(a.body))
			}
		}
		f.demand(t, "more", []int{422}, http.MethodGet, files+"?path=/&limit=100000", "")
		f.demand(t, "deeper", []int{422}, http.MethodGet, files+"?path=/&depth=100000", "")
	})
	t.Run("C33 C35 swaps", func(t *testing.T) { f.swapped(t, x, clean) })
	t.Run("C33 packing", func(t *testing.T) {
		clean("tar", f.cut(t, x.path()+"/tar?path=/workspace/n/wide", 64<<20))
		clean("tar", f.cut(t, x.path()+"/tar?path=/workspace/n", 16<<20)) // holds the terabyte
		clean("tar", f.cut(t, x.path()+"/tar?path=/workspace/n/fifo", 1<<20))
		clean("tar", f.cut(t, x.path()+"/tar?path=/workspace/n/root", 1<<20))
		clean("tar", f.cut(t, x.path()+"/tar?path=/proc/1", 1<<20))
		f.run(x, "ln -s /proc/1/status n/status; ln -s /proc/1/maps n/maps")
		for _, name := range []string{"environ", "mem", "status", "maps", "fd", "zero", "shadow"} { // the guest packs with its own rights
			a := f.cut(t, x.path()+"/tar?path=/workspace/n/"+name, 1<<20)
			if clean(name, a); a.status == http.StatusOK {
				t.Errorf("a tar of the link %s: %.200q", name, a.body)
			}
		}
	})
	t.Run("C36 C37 hostile archives", func(t *testing.T) { f.archives(t, x) })
	t.Run("C32 patches", func(t *testing.T) {
		for _, p := range []string{
			"--- /dev/null\n+++ b/../out\n@@ -0,0 +1 @@\n+x\n", "--- /dev/null\n+++ /etc/out\n@@ -0,0 +1 @@\n+x\n", "--- a/../../etc/passwd\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
			"diff --git a/x b/../../y\nsimilarity index 100%\nrename from x\nrename to ../../y\n", "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n",
			"diff --git a/m b/m\nnew file mode 160000\n--- /dev/null\n+++ b/m\n@@ -0,0 +1 @@\n+Subproject commit 0\n", "@@ -1 +1 @@\n", "--- a/x\n+++ b/x\n@@ -1,99999999999 +1 @@\n", "\x00\x01\x02", strings.Repeat("--- a/x\n+++ b/x\n", 10000),
		} {
			f.demand(t, fmt.Sprintf("%.60q", p), []int{404, 409, 422}, http.MethodPost, files+"/patch", p)
		}
		// Large files in one small patch: they are not all held.
		f.run(x, "mkdir -p p; cd p; for i in 1 2 3 4 5 6; do (echo top; head -c 15000000 /dev/zero) > $i; done")
		var all strings.Builder
		for i := 1; i <= 6; i++ {
			fmt.Fprintf(&all, "--- a/%d\n+++ b/%d\n@@ -1 +1,2 @@\n top\n+more\n", i, i)
		}
		f.demand(t, "large files", []int{422, 409}, http.MethodPost, files+"/patch?path=/workspace/p", all.String())
		if got := f.run(x, "head -qn1 p/* | sort -u; head -qn2 p/* | grep -ac more || true"); got != "top\n0\n" {
			t.Errorf("half of a patch was applied: %q", got)
		}
	})
	f.well(t, neighbour)
	f.bounded(t, "after hostile files")
}

// cut reads so much of a stream and hangs up.
func (f *fort) cut(t *testing.T, path string, most int64) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := do(f.http, req, most)
	if err != nil && ctx.Err() != nil {
		t.Errorf("%s hangs: %v", path, err)
	}
	if a.status >= 500 {
		t.Errorf("%s: %.300s", path, a)
	}
	return a
}

// swapped reads and writes names under which something else stands each moment.
func (f *fort) swapped(t *testing.T, x box, clean func(string, answer)) {
	e := f.begin(x, map[string]any{"command": []string{"python3", "swaps.py"}})
	eventually(t, "it swaps", func() (bool, string) {
		a, err := f.patient(http.MethodGet, x.path()+"/execs/"+e.ID+"/output", nil)
		return err == nil && strings.Contains(string(a.body), "began"), fmt.Sprintf("%s, %v", a, err)
	})
	files := x.path() + "/files"
	any := []int{200, 204, 403, 404, 409, 422}
	for range 10 {
		clean("a swapped file", f.demand(t, "read", any, http.MethodGet, files+"/content?path=/workspace/s/what", ""))
		f.demand(t, "write", any, http.MethodPut, files+"/content?path=/workspace/s/what", "w")
		f.demand(t, "copy", any, http.MethodPost, files+"/copy", `{"from":"/workspace/s","to":"/workspace/t"}`)
		f.demand(t, "remove", any, http.MethodDelete, files+"?path=/workspace/t&recursive=true", "")
		f.demand(t, "list", any, http.MethodGet, files+"?path=/workspace/s&depth=3", "")
		clean("a growing file", f.cut(t, files+"/content?path=/workspace/s/grows", 1<<20))
		clean("a tar of it", f.cut(t, x.path()+"/tar?path=/workspace/s", 4<<20))
	}
	f.demand(t, "kill", []int{200}, http.MethodPost, x.path()+"/execs/"+e.ID+"/kill", "")
}

// archives puts tars in that want to be elsewhere.
func (f *fort) archives(t *testing.T, x box) {
	f.run(x, "mkdir -p up in/a; echo keep > outside; ln -s /workspace in/link; ln -s /workspace/outside in/file")
	write := func(headers ...*tar.Header) string {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			body := ""
			if h.Typeflag == tar.TypeReg {
				body = "hostile"
				h.Size = int64(len(body))
			}
			h.ModTime = time.Unix(1, 0)
			if h.Mode == 0 {
				h.Mode = 0o644
			}
			if err := w.WriteHeader(h); err != nil {
				t.Fatalf("%+v: %v", h, err)
			}
			if _, err := io.WriteString(w, body); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	reg := func(name string) *tar.Header { return &tar.Header{Name: name, Typeflag: tar.TypeReg} }
	link := func(kind byte, name, to string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: kind, Linkname: to}
	}
	good := write(reg("x"))
	huge := []byte(good)
	copy(huge[124:136], "77777777777\x00")
	negative := []byte(good)
	copy(negative[124:136], "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
	for what, text := range map[string]string{
		"absolute": write(reg("/workspace/outside")), "up": write(reg("../outside")), "up in the middle": write(reg("a/../../outside")), "through a link that is there": write(reg("link/outside")),
		"onto a link that is there": write(reg("file")), "through a link of its own": write(link(tar.TypeSymlink, "l", "/workspace"), reg("l/outside")),
		"hard link out": write(link(tar.TypeLink, "h", "../outside"), reg("h")), "hard link to a link": write(link(tar.TypeSymlink, "s", "/workspace/outside"), link(tar.TypeLink, "h2", "s"), reg("h2")),
		"absolute hard link": write(link(tar.TypeLink, "h3", "/workspace/outside"), reg("h3")), "device": write(&tar.Header{Name: "dev", Typeflag: tar.TypeBlock, Devmajor: 8}), "zero": write(&tar.Header{Name: "zero", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5}),
		"fifo": write(&tar.Header{Name: "fifo", Typeflag: tar.TypeFifo}, reg("fifo")), "set-id": write(&tar.Header{Name: "suid", Typeflag: tar.TypeReg, Mode: 0o6777}),
		"same name twice": write(reg("twice"), reg("twice"), &tar.Header{Name: "twice", Typeflag: tar.TypeDir, Mode: 0o755}), "long name": write(reg(strings.Repeat("n", 3000))), "deep": write(reg(strings.Repeat("d/", 1500) + "f")),
		"pax": write(&tar.Header{Name: "p", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"path": "../outside", "linkpath": "/etc"}, Format: tar.FormatPAX}), "size that lies": string(huge), "negative": string(negative),
		"cut": good[:700], "noise": strings.Repeat("\x00x", 5000), "empty": "", "only zeros": strings.Repeat("\x00", 1<<20), "root itself": write(&tar.Header{Name: "/", Typeflag: tar.TypeDir, Mode: 0o777}), "dots": write(&tar.Header{Name: "..", Typeflag: tar.TypeDir, Mode: 0o777}),
	} {
		f.demand(t, what, []int{204, 400, 403, 409, 413, 422, 429, 507}, http.MethodPut, x.path()+"/tar?path=/workspace/in", text)
	}
	if got := f.run(x, "cat outside; ls -A | grep -c hostile || true; find in -perm /6000; find in -type b -o -type c"); got != "keep\n0\n" {
		t.Errorf("what was put in led out: %q", got)
	}
}
