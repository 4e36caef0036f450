package drivertest

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// fileChecks are the sentences on files in and out.
func fileChecks() []check {
	return []check{
		{"folders that all users share", sharedFolders},
		{"Put unpacks below a folder and makes parents", putParents},
		{"Put keeps what is there beside it", putBeside},
		{"Put keeps the executable bit", putExecutable},
		{"Put refuses or confines names that lead out of the folder", putEscapes},
		{"Put of what is no tar is Invalid", putGarbage},
		{"Put that breaks off leaves no half of a file", putHalf},
		{"Put that breaks off keeps the file that it would have replaced", putHalfOver},
		{"what PutLocked puts can be read and not be changed", putLocked},
		{"Get packs a folder with names relative to it", getFolder},
		{"Get packs one file under its base name", getFile},
		{"Get of what does not exist is NotFound", getMissing},
		{"Get never follows a link onto the host", getLink},
		{"Put never follows a link onto the host", putLink},
		{"large files come and go whole", largeFile},
		{"Supply gives a process its files before its input", supplied},
		{"GetAfter packs what a process has left at its end", leftAtEnd},
	}
}

// entry is one entry of a tar stream.
type entry struct {
	name, data, link string
	mode             int64
	folder           bool
	owned            bool // the sandbox user's own
}

func file(name, data string) entry { return entry{name: name, data: data, mode: 0o644} }

func tarOf(r *rig, entries ...entry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data)), Typeflag: tar.TypeReg}
		if e.link != "" {
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.link, 0o777
		}
		if e.folder {
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		if e.owned {
			h.Uid = 1
		}
		if err := w.WriteHeader(h); err != nil {
			r.Errorf("make a tar: %v", err)
		}
		if _, err := io.WriteString(w, e.data); err != nil {
			r.Errorf("make a tar: %v", err)
		}
	}
	if err := w.Close(); err != nil {
		r.Errorf("make a tar: %v", err)
	}
	return b.Bytes()
}

func (r *rig) put(b sandbox.Box, dir string, entries ...entry) {
	r.Helper()
	if err := b.Put(r.ctx, dir, bytes.NewReader(tarOf(r, entries...))); err != nil {
		r.Fatalf("put below %s: %v", dir, err)
	}
}

// get returns the files and links of path by name. Folders are left out.
func (r *rig) get(b sandbox.Box, path string) map[string]entry {
	r.Helper()
	var packed bytes.Buffer
	if err := b.Get(r.ctx, path, &packed); err != nil {
		r.Fatalf("get %s: %v", path, err)
	}
	found := map[string]entry{}
	stream := tar.NewReader(&packed)
	for {
		h, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			r.Fatalf("read what Get packed: %v", err)
		}
		name := strings.TrimPrefix(h.Name, "./")
		if strings.HasPrefix(name, "/") || strings.Contains(name, "..") {
			r.Fatalf("Get packed the name %q", h.Name)
		}
		data, err := io.ReadAll(stream)
		if err != nil {
			r.Fatalf("read what Get packed: %v", err)
		}
		if h.Typeflag != tar.TypeDir {
			found[name] = entry{name: name, data: string(data), link: h.Linkname, mode: h.Mode}
		}
	}
}

func putParents(r *rig) {
	b := r.box()
	r.put(b, "/workspace/a/b", file("c/d.txt", "deep"), entry{name: "empty/", folder: true})
	r.wantText("the file", r.say(b, "cat /workspace/a/b/c/d.txt"), "deep")
	r.say(b, "cd /workspace/a/b/empty && pwd")
}

func putBeside(r *rig) {
	b := r.box()
	r.say(b, "echo old > old.txt; echo old > both.txt")
	r.put(b, "/workspace", file("new.txt", "new\n"), file("both.txt", "new\n"))
	r.wantText("the files", r.say(b, "cat old.txt new.txt both.txt"), "old\nnew\nnew")
}

func putHalf(r *rig) {
	b := r.box()
	all := tarOf(r, file("whole", "whole\n"), file("half", strings.Repeat("x", 64<<10)))
	if err := b.Put(r.ctx, "/workspace/p", bytes.NewReader(all[:len(all)/2])); !fault.Is(err, fault.Invalid) {
		r.Errorf("half a tar: %v", err)
	}
	r.wantText("what is there", r.say(b, "cat p/whole; test -e p/half || echo none"), "whole\nnone")
}

func putHalfOver(r *rig) {
	b := r.box()
	r.say(b, "mkdir p; echo old > p/half; ln -s half p/whole")
	all := tarOf(r, file("whole", "whole\n"), file("half", strings.Repeat("x", 64<<10)))
	if err := b.Put(r.ctx, "/workspace/p", bytes.NewReader(all[:len(all)/2])); !fault.Is(err, fault.Invalid) {
		r.Errorf("half a tar: %v", err)
	}
	found := r.get(b, "/workspace/p")
	if len(found) != 2 || found["whole"].data != "whole\n" || found["half"].data != "old\n" {
		r.Errorf("what is there: %v", found)
	}
}

func putExecutable(r *rig) {
	b := r.box()
	r.put(b, "/workspace", entry{name: "run", mode: 0o755, data: "#!/bin/sh\necho it runs\n"})
	spec := r.sh("")
	spec.Command = []string{"/workspace/run"}
	exit, out := r.run(b, spec)
	if exit.Code != 0 || out.stdout != "it runs\n" {
		r.Errorf("exit %+v after %q", exit, out)
	}
}

func putLocked(r *rig) {
	b := r.box()
	locker, ok := b.(sandbox.Locker)
	if !ok {
		return // Sandbox refuses what asks for it
	}
	files := tarOf(r, file("main.sh", "code"), entry{name: "open/", folder: true, owned: true})
	if err := locker.PutLocked(r.ctx, "/workspace", bytes.NewReader(files)); err != nil {
		r.Fatalf("put locked: %v", err)
	}
	r.wantText("the file", r.say(b, "cat main.sh; echo x > open/mine; cat open/mine"), "codex")
	if !r.h.Kernel {
		return // nothing in it changes what it was not told to
	}
	const tries = `exec 2>/dev/null; echo x > main.sh; echo x >> main.sh; rm -f main.sh; mv main.sh other; chmod 777 main.sh; chmod 777 .; ln -sf /etc/passwd main.sh
mkdir new; rm -rf open; mv open elsewhere; touch new.txt; touch -d @1 main.sh; cat main.sh; ls`
	r.wantText("what is left", r.say(b, tries), "codemain.sh\nopen")
}

func supplied(r *rig) {
	b := r.box()
	spec := r.sh("cat; cat given.txt")
	spec.Stdin = true
	p := r.exec(b, spec)
	supplier, ok := p.(sandbox.Supplier)
	if !ok {
		return // Exec does one after the other
	}
	_, locked := b.(sandbox.Locker)
	files := sandbox.Files{Dir: "/workspace", Tar: bytes.NewReader(tarOf(r, file("given.txt", "the file"))), Locked: locked}
	if err := supplier.Supply(r.ctx, files, []byte("the input, ")); err != nil {
		r.Fatalf("supply: %v", err)
	}
	out := r.collect(p, sandbox.Offsets{})
	if exit := r.wait(p); exit.Code != 0 || out.stdout != "the input, the file" {
		r.Errorf("exit %+v after %q", exit, out)
	}
	garbage := sandbox.Files{Dir: "/workspace", Tar: strings.NewReader(strings.Repeat("no tar. ", 200)), Locked: locked}
	spec.ID = r.newID()
	p = r.exec(b, spec)
	r.wantKind("supply garbage", p.(sandbox.Supplier).Supply(r.ctx, garbage, []byte("never")), fault.Invalid)
	if out := r.collect(p, sandbox.Offsets{}); out.stdout != "the file" {
		r.Errorf("without its files it was given %q", out.stdout)
	}
}

func leftAtEnd(r *rig) {
	b := r.box()
	spec := r.sh("cat > /dev/null; mkdir left; echo -n last > left/words")
	spec.Stdin = true
	p := r.exec(b, spec)
	leaver, ok := p.(sandbox.Leaver)
	if !ok {
		return // Exec waits for the end first
	}
	var left bytes.Buffer
	got := make(chan error, 1)
	go func() { got <- leaver.GetAfter(r.ctx, "/workspace/left", &left) }()
	if err := p.CloseInput(r.ctx); err != nil {
		r.Fatalf("close the input: %v", err)
	}
	if err := <-got; err != nil {
		r.Fatalf("get: %v", err)
	}
	if text := left.String(); !strings.Contains(text, "words") || !strings.Contains(text, "last") {
		r.Errorf("what was left is not in %d bytes", left.Len())
	}
	r.wait(p)
}

func putEscapes(r *rig) {
	b := r.box()
	for _, name := range []string{"../outside", "/workspace/outside", "in/../../outside"} {
		err := b.Put(r.ctx, "/workspace/in", bytes.NewReader(tarOf(r, file(name, "out"))))
		if err != nil {
			r.wantKind("put "+name, err, fault.Invalid)
		}
	}
	r.wantKind("get what must not be there", b.Get(r.ctx, "/workspace/outside", io.Discard), fault.NotFound)
}

func putGarbage(r *rig) {
	b := r.box()
	garbage := strings.Repeat("this is no tar stream at all. ", 200)
	r.wantKind("put", b.Put(r.ctx, "/workspace", strings.NewReader(garbage)), fault.Invalid)
	r.say(b, "true")
}

func getFolder(r *rig) {
	b := r.box()
	r.say(b, "mkdir -p tree/sub; echo one > tree/one; echo two > tree/sub/two; ln -s one tree/link")
	found := r.get(b, "/workspace/tree")
	r.wantText("one", found["one"].data, "one\n")
	r.wantText("sub/two", found["sub/two"].data, "two\n")
	r.wantText("link", found["link"].link, "one")
	if len(found) != 3 {
		r.Errorf("Get packed %d entries: %v", len(found), found)
	}
}

func getFile(r *rig) {
	b := r.box()
	r.say(b, "mkdir -p deep/er; echo one > deep/er/file.txt")
	found := r.get(b, "/workspace/deep/er/file.txt")
	if len(found) != 1 || found["file.txt"].data != "one\n" {
		r.Errorf("Get packed %v, want file.txt", found)
	}
}

func getMissing(r *rig) {
	b := r.box()
	r.wantKind("get", b.Get(r.ctx, "/workspace/nothing/here", io.Discard), fault.NotFound)
}

// secret makes a file on the host that must stay there.
func (r *rig) secret() (path, words string) {
	r.Helper()
	words = "host secret " + r.newID()
	path = filepath.Join(r.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(words), 0o644); err != nil { //nolint:gosec // readable on purpose
		r.Fatal(err)
	}
	return path, words
}

func getLink(r *rig) {
	b := r.box()
	path, words := r.secret()
	r.say(b, "mkdir -p out; ln -s "+path+" out/leak; ln -s "+filepath.Dir(path)+" out/folder")
	for _, name := range []string{"/workspace/out", "/workspace/out/leak", "/workspace/out/folder", "/workspace/out/folder/secret"} {
		var packed bytes.Buffer
		if err := b.Get(r.ctx, name, &packed); err != nil {
			continue // refused is as good
		}
		if strings.Contains(packed.String(), words) {
			r.Errorf("Get %s packed a file of the host", name)
		}
	}
}

func putLink(r *rig) {
	b := r.box()
	path, words := r.secret()
	dir := filepath.Dir(path)
	r.say(b, "ln -s "+dir+" inside; ln -s "+path+" victim")
	attempts := map[string][]byte{
		"/workspace/inside": tarOf(r, file("new", "from inside"), file("secret", "overwritten")),
		"/workspace":        tarOf(r, file("inside/new", "from inside"), file("victim", "overwritten")),
		"/workspace/packed": tarOf(r, entry{name: "up", link: dir}, file("up/new", "from inside"), file("up/secret", "overwritten")),
	}
	for where, packed := range attempts {
		if err := b.Put(r.ctx, where, bytes.NewReader(packed)); err != nil {
			r.Logf("put below %s: %v", where, err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		r.Errorf("the host's folder holds %v (%v), want the secret alone", left, err)
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != words { //nolint:gosec // our own file
		r.Errorf("the host's file was changed to %q (%v)", now, err)
	}
}

func largeFile(r *rig) {
	b := r.box()
	data := strings.Repeat("0123456789abcdef", 1<<16)
	r.put(b, "/workspace", file("large", data))
	r.wantText("the file again", r.get(b, "/workspace/large")["large"].data, data)
	_, out := r.run(b, r.sh("cat large"))
	r.wantText("the file as output", out.stdout, data)
}

// sharedFolders are where programs expect to be able to write whoever they run
// as, and where nobody removes what another has.
func sharedFolders(r *rig) {
	r.need(r.h.Kernel, "a harness with a kernel")
	b := r.box()
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		r.wantText(dir, r.say(b, "echo mine >"+dir+"/mine && cat "+dir+"/mine && stat -c '%a %u' "+dir), "mine\n1777 0")
	}
}
