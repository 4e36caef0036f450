package drivertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func mkdirs(r *rig) {
	b, f := r.filer()
	if err := f.Mkdir(r.ctx, "/workspace/a/b/c", 0o700); err != nil {
		r.Fatal(err)
	}
	if info := r.stat(f, "/workspace/a/b/c"); info.Type != sandbox.TypeDir || info.Mode != 0o700 {
		r.Errorf("%+v", info)
	}
	if info := r.stat(f, "/workspace/a/b"); info.Mode != 0o755 {
		r.Errorf("a parent: %+v", info)
	}
	r.say(b, "echo x > a/b/c/f; ln -s a/b link")
	for _, name := range []string{"/workspace/a/b/c", "/workspace/link", "/"} {
		if err := f.Mkdir(r.ctx, name, 0); err != nil {
			r.Errorf("make what is there: %v", err)
		}
	}
	if info := r.stat(f, "/workspace/a/b/c"); info.Mode != 0o700 {
		r.Errorf("it was changed: %+v", info)
	}
	r.wantCode("make what is a file", f.Mkdir(r.ctx, "/workspace/a/b/c/f", 0), fault.Conflict, sandbox.CodeExists)
	r.wantCode("make below a file", f.Mkdir(r.ctx, "/workspace/a/b/c/f/g", 0), fault.Conflict, sandbox.CodeNotDir)
	r.wantKind("a mode of more than permissions", f.Mkdir(r.ctx, "/workspace/x", 0o1777), fault.Invalid)
}

func moves(r *rig) {
	b, f := r.filer()
	r.say(b, "mkdir -p t/sub; echo one > t/sub/f; echo other > taken; ln -s t link")
	if err := f.Move(r.ctx, "/workspace/t", "/workspace/new/place"); err != nil {
		r.Fatal(err)
	}
	r.wantText("the file", r.read(f, "/workspace/new/place/sub/f"), "one\n")
	_, err := f.Stat(r.ctx, "/workspace/t")
	r.wantKind("the old path", err, fault.NotFound)
	if err := f.Move(r.ctx, "/workspace/link", "/workspace/link2"); err != nil {
		r.Fatal(err)
	}
	if info := r.stat(f, "/workspace/link2"); info.Type != sandbox.TypeLink || info.Target != "t" {
		r.Errorf("%+v", info)
	}
	r.wantCode("onto a file", f.Move(r.ctx, "/workspace/new/place/sub/f", "/workspace/taken"), fault.Conflict, sandbox.CodeExists)
	r.wantCode("onto a folder", f.Move(r.ctx, "/workspace/taken", "/workspace/new"), fault.Conflict, sandbox.CodeExists)
	r.wantText("what was there", r.read(f, "/workspace/taken"), "other\n")
	r.wantKind("below itself", f.Move(r.ctx, "/workspace/new", "/workspace/new/place/new"), fault.Invalid)
	r.wantKind("what is missing", f.Move(r.ctx, "/workspace/missing", "/workspace/x"), fault.NotFound)
	// Another file system, perhaps.
	if err := f.Move(r.ctx, "/workspace/new", "/tmp/moved"); err != nil {
		r.Fatal(err)
	}
	r.wantText("in another place", r.read(f, "/tmp/moved/place/sub/f"), "one\n")
	_, err = f.Stat(r.ctx, "/workspace/new")
	r.wantKind("the old path", err, fault.NotFound)
}

func copies(r *rig) {
	b, f := r.filer()
	r.say(b, "mkdir -p t/sub/deep; echo one > t/sub/f; ln -s sub/f t/link; ln -s t top; echo other > taken")
	if _, err := f.WriteFile(r.ctx, "/workspace/t/run", 0o755, strings.NewReader("x")); err != nil {
		r.Fatal(err)
	}
	if err := f.Copy(r.ctx, "/workspace/t", "/workspace/made/copy"); err != nil {
		r.Fatal(err)
	}
	names, _ := r.list(f, "/workspace/made/copy", 9, 0)
	r.wantText("the copy", strings.Join(names, " "), "link run sub sub/deep sub/f")
	r.wantText("a file", r.read(f, "/workspace/made/copy/sub/f"), "one\n")
	if info := r.stat(f, "/workspace/made/copy/run"); info.Mode != 0o755 {
		r.Errorf("the mode: %+v", info)
	}
	if info := r.stat(f, "/workspace/made/copy/link"); info.Type != sandbox.TypeLink || info.Target != "sub/f" {
		r.Errorf("the link: %+v", info)
	}
	r.write(f, "/workspace/made/copy/sub/f", "changed")
	r.wantText("the first", r.read(f, "/workspace/t/sub/f"), "one\n")
	if err := f.Copy(r.ctx, "/workspace/top", "/workspace/top2"); err != nil {
		r.Fatal(err)
	}
	if info := r.stat(f, "/workspace/top2"); info.Type != sandbox.TypeLink {
		r.Errorf("a copy of a link: %+v", info)
	}
	r.wantCode("onto a file", f.Copy(r.ctx, "/workspace/t/sub/f", "/workspace/taken"), fault.Conflict, sandbox.CodeExists)
	r.wantText("what was there", r.read(f, "/workspace/taken"), "other\n")
	r.wantKind("below itself", f.Copy(r.ctx, "/workspace/t", "/workspace/t/sub/t"), fault.Invalid)
	r.wantKind("what is missing", f.Copy(r.ctx, "/workspace/missing", "/workspace/x"), fault.NotFound)
	names, _ = r.list(f, "/workspace", 1, 0)
	r.wantText("what is there now", strings.Join(names, " "), "made t taken top top2")
}

func removes(r *rig) {
	b, f := r.filer()
	r.say(b, "mkdir -p t/sub empty; echo one > t/sub/f; ln -s t link; echo x > f")
	r.wantCode("a folder with entries", f.Remove(r.ctx, "/workspace/t", false), fault.Conflict, sandbox.CodeNotEmpty)
	for name, recursive := range map[string]bool{"link": true, "f": false, "empty": false} {
		if err := f.Remove(r.ctx, "/workspace/"+name, recursive); err != nil {
			r.Errorf("remove %s: %v", name, err)
		}
	}
	r.wantText("what the link meant", r.read(f, "/workspace/t/sub/f"), "one\n")
	if err := f.Remove(r.ctx, "/workspace/t", true); err != nil {
		r.Fatal(err)
	}
	if names, _ := r.list(f, "/workspace", 9, 0); len(names) > 0 {
		r.Errorf("left: %v", names)
	}
	for _, recursive := range []bool{false, true} {
		r.wantKind("what is missing", f.Remove(r.ctx, "/workspace/t", recursive), fault.NotFound)
		r.wantKind("the root", f.Remove(r.ctx, "/", recursive), fault.Invalid)
	}
}

func fileRights(r *rig) {
	b, f := r.filer()
	r.need(r.h.Kernel, "a harness with a kernel")
	r.write(f, "/workspace/made/f", "x")
	if err := f.Mkdir(r.ctx, "/workspace/dir/dir", 0); err != nil {
		r.Fatal(err)
	}
	if err := f.Copy(r.ctx, "/etc/passwd", "/workspace/copied"); err != nil {
		r.Fatal(err)
	}
	r.wantText("the owners", r.say(b, "stat -c '%U %G' made made/f dir dir/dir copied | sort -u"), "sandbox sandbox")
	denied := map[string]error{
		"mkdir":  f.Mkdir(r.ctx, "/etc/new", 0),
		"move":   f.Move(r.ctx, "/etc/passwd", "/workspace/passwd"),
		"remove": f.Remove(r.ctx, "/etc/passwd", false),
		"tree":   f.Remove(r.ctx, "/etc", true),
		"home":   f.Remove(r.ctx, "/workspace", true),
		"copy":   f.Copy(r.ctx, "/workspace/made", "/usr/made"),
	}
	_, denied["write"] = f.WriteFile(r.ctx, "/etc/passwd", 0, strings.NewReader("root::0:0::/:/bin/sh\n"))
	_, denied["new"] = f.WriteFile(r.ctx, "/new", 0, strings.NewReader("x"))
	r.say(b, "mkdir closed; echo x > closed/f; chmod 0 closed; echo x > mute; chmod 0 mute; ln -s /etc/passwd link")
	_, denied["read"] = f.ReadFile(r.ctx, "/workspace/mute", 0, -1, io.Discard)
	_, denied["below"] = f.ReadFile(r.ctx, "/workspace/closed/f", 0, -1, io.Discard)
	_, denied["link"] = f.WriteFile(r.ctx, "/workspace/link", 0, strings.NewReader("x"))
	for what, err := range denied {
		if !fault.Is(err, fault.Denied) {
			r.Errorf("%s: %v (kind %v)", what, err, fault.KindOf(err))
		}
	}
	r.wantText("what is still there", r.read(f, "/workspace/made/f"), "x")
	if names, _ := r.list(f, "/workspace", 9, 0); !slices.Contains(names, "closed") {
		r.Errorf("a folder that may not be read is not listed: %v", names)
	}
	var body bytes.Buffer
	if _, err := f.ReadFile(r.ctx, "/etc/passwd", 0, -1, &body); err != nil || strings.Contains(body.String(), "root::0") {
		r.Errorf("%q, %v", body.String(), err)
	}
}

func fileDiskFull(r *rig) {
	r.need(r.d.Capabilities().Files && r.d.Capabilities().Disk, "files and a disk limit")
	spec := r.spec()
	spec.Limits.Disk = 8 << 20
	b := r.create(spec)
	f := r.filerOf(b)
	r.write(f, "/workspace/kept", "old")
	for _, name := range []string{"/workspace/kept", "/workspace/new"} {
		_, err := f.WriteFile(r.ctx, name, 0, io.LimitReader(ones{}, 32<<20))
		r.wantCode("write more than fits", err, fault.Exhausted, sandbox.CodeDiskFull)
	}
	r.wantText("what was there", r.read(f, "/workspace/kept"), "old")
	r.write(f, "/workspace/small", "there is room again")
}

type ones struct{}

func (ones) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 1
	}
	return len(p), nil
}

func badPaths(r *rig) {
	_, f := r.filer()
	for _, name := range []string{"", "relative", "../up", "/nul\x00", "/" + strings.Repeat("a/", 3000)} {
		calls := map[string]error{
			"mkdir":  f.Mkdir(r.ctx, name, 0),
			"from":   f.Move(r.ctx, name, "/workspace/x"),
			"to":     f.Move(r.ctx, "/workspace", name),
			"copy":   f.Copy(r.ctx, "/workspace", name),
			"remove": f.Remove(r.ctx, name, true),
		}
		_, calls["stat"] = f.Stat(r.ctx, name)
		_, _, calls["list"] = f.List(r.ctx, name, 1, 1)
		_, calls["read"] = f.ReadFile(r.ctx, name, 0, -1, io.Discard)
		_, calls["write"] = f.WriteFile(r.ctx, name, 0, strings.NewReader("x"))
		_, calls["watch"] = f.Watch(r.ctx, name, false)
		for call, err := range calls {
			if !fault.Is(err, fault.Invalid) {
				r.Errorf("%s %.20q: %v", call, name, err)
			}
		}
	}
	_, err := f.WriteFile(r.ctx, "/workspace/"+strings.Repeat("n", 300), 0, strings.NewReader("x"))
	if r.h.Kernel {
		r.wantKind("a name that is too long", err, fault.Invalid)
	}
	odd := "/workspace/ a\n\"'\\\xff\u202e ünï"
	r.write(f, odd, "odd")
	r.wantText("an odd name", r.read(f, odd), "odd")
	r.write(f, "/workspace/a/../b/./c//d", "clean")
	r.wantText("a path to be cleaned", r.read(f, "/workspace/b/c/d"), "clean")
}

func manyFiles(r *rig) {
	_, f := r.filer()
	var all sync.WaitGroup
	sizes := []int{0, 1, 1000, 4083, 4084, 4085, 64 << 10, 300_000, 1 << 20, 10 << 20}
	for i, size := range sizes {
		all.Go(func() {
			data := bytes.Repeat([]byte(fmt.Sprintf("%07d\n", i)), size/8+1)[:size]
			name := fmt.Sprintf("/workspace/%d", i)
			// A reader of which nobody knows how long it is, in odd pieces.
			info, err := f.WriteFile(r.ctx, name, 0, io.MultiReader(bytes.NewReader(data[:size/3]), bytes.NewReader(data[size/3:])))
			if err != nil || info.Size != int64(size) {
				r.Errorf("write %d bytes: %+v, %v", size, info, err)
				return
			}
			var back bytes.Buffer
			info, err = f.ReadFile(r.ctx, name, 0, -1, &back)
			if err != nil || info.Size != int64(size) || !bytes.Equal(back.Bytes(), data) {
				r.Errorf("read %d bytes: %d, %+v, %v", size, back.Len(), info, err)
			}
		})
	}
	all.Wait()
}

func filesRecovered(r *rig) {
	r.need(r.d.Capabilities().Files && r.d.Capabilities().Recover, "files and recovery")
	dir := folder(r.T)
	d := r.h.Open(r.T, dir)
	spec := r.spec()
	b, err := d.Create(r.ctx, spec, noReport)
	if err != nil {
		r.Fatal(err)
	}
	f := r.filerOf(b)
	r.write(f, "/workspace/a/f", "kept")
	r.write(f, "/workspace/gone", "x")
	if err := errors.Join(f.Copy(r.ctx, "/workspace/a", "/workspace/b"), f.Move(r.ctx, "/workspace/a", "/workspace/c"), f.Remove(r.ctx, "/workspace/gone", false), f.Mkdir(r.ctx, "/workspace/d", 0)); err != nil {
		r.Fatal(err)
	}
	w, err := f.Watch(r.ctx, "/workspace", true)
	if err != nil {
		r.Fatal(err)
	}
	if err := d.Close(); err != nil {
		r.Fatal(err)
	}
	if err := r.soon("the watch of a driver that is closed", func() error {
		for {
			if _, err := w.Next(r.ctx); err != nil {
				return err
			}
		}
	}); err == nil {
		r.Error("it goes on")
	}
	if err := w.Close(); err != nil {
		r.Error(err)
	}
	d = r.h.Open(r.T, dir)
	defer func() {
		if err := errors.Join(d.Destroy(r.ctx, b.Handle()), d.Close()); err != nil {
			r.Error(err)
		}
	}()
	again, err := d.Recover(r.ctx, b.Handle())
	if err != nil {
		r.Fatal(err)
	}
	f = r.filerOf(again)
	names, _ := r.list(f, "/workspace", 9, 0)
	r.wantText("what is there", strings.Join(names, " "), "b b/f c c/f d")
	r.wantText("the file", r.read(f, "/workspace/c/f"), "kept")
}

func filesAfterDestroy(r *rig) {
	b, f := r.filer()
	r.write(f, "/workspace/f", "x")
	w, err := f.Watch(r.ctx, "/workspace", false)
	if err != nil {
		r.Fatal(err)
	}
	if err := r.d.Destroy(r.ctx, b.Handle()); err != nil {
		r.Fatal(err)
	}
	_, err = w.Next(r.ctx)
	if !errors.Is(err, io.EOF) {
		r.Errorf("the watch: %v", err)
	}
	if err := w.Close(); err != nil {
		r.Errorf("close the watch: %v", err)
	}
	for what, call := range map[string]func() error{
		"stat":  func() error { _, err := f.Stat(r.ctx, "/workspace/f"); return err },
		"list":  func() error { _, _, err := f.List(r.ctx, "/workspace", 1, 1); return err },
		"read":  func() error { _, err := f.ReadFile(r.ctx, "/workspace/f", 0, -1, io.Discard); return err },
		"write": func() error { _, err := f.WriteFile(r.ctx, "/workspace/f", 0, strings.NewReader("x")); return err },
		"watch": func() error { _, err := f.Watch(r.ctx, "/workspace", false); return err },
		"copy":  func() error { return f.Copy(r.ctx, "/workspace/f", "/workspace/g") },
	} {
		r.wantKind(what, r.soon(what, call), fault.NotFound, fault.Conflict)
	}
}
