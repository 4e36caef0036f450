package drivertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"testing/iotest"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// filerChecks are the sentences on single files.
func filerChecks() []check {
	return []check{
		{"files that are not declared are not offered", noFiler},
		{"Stat looks at the path itself", statItself},
		{"List is sorted and as deep as was asked", listDepth},
		{"List is bounded and says that there is more", listBound},
		{"ReadFile reads any part of a file", readParts},
		{"ReadFile follows links inside the sandbox", readLinks},
		{"ReadFile and WriteFile never wait for a FIFO or a device", specialFiles},
		{"WriteFile makes parents and keeps or sets the mode", writeModes},
		{"WriteFile puts a file there whole or not at all", writeWhole},
		{"WriteFile follows a link, which stays", writeLink},
		{"Mkdir makes parents and leaves what is there", mkdirs},
		{"Move gives another path and replaces nothing", moves},
		{"Copy copies trees and replaces nothing", copies},
		{"Remove takes a tree only when told to", removes},
		{"files are reached with the rights of the sandbox's user", fileRights},
		{"a disk that is full is said to be", fileDiskFull},
		{"a path that cannot be one is Invalid", badPaths},
		{"files of any size go and come whole, many at once", manyFiles},
		{"files survive a recovery", filesRecovered},
		{"calls on the files of what was destroyed fail soon", filesAfterDestroy},
	}
}

// filer returns the files of a new sandbox.
func (r *rig) filer() (sandbox.Box, sandbox.Filer) {
	r.Helper()
	r.need(r.d.Capabilities().Files, "files")
	b := r.box()
	return b, r.filerOf(b)
}

func (r *rig) filerOf(b sandbox.Box) sandbox.Filer {
	r.Helper()
	f, ok := b.(sandbox.Filer)
	if !ok {
		r.Fatal("the driver declares files, and its boxes have none")
	}
	return f
}

func (r *rig) write(f sandbox.Filer, name, text string) sandbox.FileInfo {
	r.Helper()
	info, err := f.WriteFile(r.ctx, name, 0, strings.NewReader(text))
	if err != nil {
		r.Fatalf("write %s: %v", name, err)
	}
	return info
}

func (r *rig) read(f sandbox.Filer, name string) string {
	r.Helper()
	var b bytes.Buffer
	if _, err := f.ReadFile(r.ctx, name, 0, -1, &b); err != nil {
		r.Fatalf("read %s: %v", name, err)
	}
	return b.String()
}

func (r *rig) stat(f sandbox.Filer, name string) sandbox.FileInfo {
	r.Helper()
	info, err := f.Stat(r.ctx, name)
	if err != nil {
		r.Fatalf("stat %s: %v", name, err)
	}
	return info
}

// list returns the paths below a folder without the folder's.
func (r *rig) list(f sandbox.Filer, dir string, depth, most int) (names []string, more bool) {
	r.Helper()
	found, more, err := f.List(r.ctx, dir, depth, most)
	if err != nil {
		r.Fatalf("list %s: %v", dir, err)
	}
	for _, info := range found {
		if info.Name != path.Base(info.Path) {
			r.Errorf("%s is called %q", info.Path, info.Name)
		}
		names = append(names, strings.TrimPrefix(info.Path, strings.TrimSuffix(dir, "/")+"/"))
	}
	return names, more
}

// wantCode fails unless the error has the kind and the code.
func (r *rig) wantCode(what string, err error, kind fault.Kind, code string) {
	r.Helper()
	r.wantKind(what, err, kind)
	r.wantText(what+": code", fault.CodeOf(err), code)
}

func noFiler(r *rig) {
	b := r.box()
	if _, ok := b.(sandbox.Filer); ok && !r.d.Capabilities().Files {
		r.Error("the driver declares no files, and its boxes have them")
	}
	if _, ok := b.(sandbox.Dialer); ok && !r.d.Capabilities().Ports {
		r.Error("the driver declares no ports, and its boxes have them")
	}
}

func statItself(r *rig) {
	b, f := r.filer()
	r.say(b, "mkdir dir; echo hello > file; ln -s file link; ln -s nowhere dangling")
	info := r.stat(f, "/workspace/file")
	if info.Path != "/workspace/file" || info.Name != "file" || info.Type != sandbox.TypeFile || info.Size != 6 || info.Mode == 0 || info.Mode > 0o777 {
		r.Errorf("a file: %+v", info)
	}
	if age := time.Since(info.ModTime); age > time.Hour || age < -time.Hour {
		r.Errorf("it was changed at %v", info.ModTime)
	}
	if info := r.stat(f, "/workspace/dir"); info.Type != sandbox.TypeDir {
		r.Errorf("a folder: %+v", info)
	}
	for link, target := range map[string]string{"link": "file", "dangling": "nowhere"} {
		if info := r.stat(f, "/workspace/"+link); info.Type != sandbox.TypeLink || info.Target != target {
			r.Errorf("a link: %+v", info)
		}
	}
	if info := r.stat(f, "/"); info.Type != sandbox.TypeDir || info.Path != "/" {
		r.Errorf("the root: %+v", info)
	}
	_, err := f.Stat(r.ctx, "/workspace/missing")
	r.wantKind("stat what is missing", err, fault.NotFound)
	_, err = f.Stat(r.ctx, "/workspace/file/below")
	r.wantCode("stat below a file", err, fault.Conflict, sandbox.CodeNotDir)
}

func listDepth(r *rig) {
	b, f := r.filer()
	// In the order of bytes a dot and a dash stand before the slash.
	r.say(b, "mkdir -p t/a/x/deep; touch t/a.txt t/a-b t/a/x/1 t/a/2 t/b t/a/x/deep/3; ln -s a t/link; ln -s t to")
	for depth, want := range map[int]string{
		-1: "a a-b a.txt b link",
		1:  "a a-b a.txt b link",
		2:  "a a-b a.txt a/2 a/x b link",
		9:  "a a-b a.txt a/2 a/x a/x/1 a/x/deep a/x/deep/3 b link",
	} {
		names, more := r.list(f, "/workspace/t", depth, 0)
		r.wantText(fmt.Sprintf("depth %d", depth), strings.Join(names, " "), want)
		if more {
			r.Errorf("depth %d: there is more", depth)
		}
	}
	names, _ := r.list(f, "/workspace/to", 1, 0)
	r.wantText("through a link", strings.Join(names, " "), "a a-b a.txt b link")
	_, _, err := f.List(r.ctx, "/workspace/t/b", 1, 0)
	r.wantCode("list a file", err, fault.Conflict, sandbox.CodeNotDir)
	_, _, err = f.List(r.ctx, "/workspace/missing", 1, 0)
	r.wantKind("list what is missing", err, fault.NotFound)
}

func listBound(r *rig) {
	_, f := r.filer()
	for i := range 30 {
		r.write(f, fmt.Sprintf("/workspace/many/%02d", i), "")
	}
	for _, most := range []int{1, 7, 29} {
		names, more := r.list(f, "/workspace/many", 1, most)
		if len(names) != most || !more {
			r.Errorf("%d of at most %d, more: %v", len(names), most, more)
		}
		if !slices.IsSorted(names) {
			r.Errorf("not sorted: %v", names)
		}
	}
	if names, more := r.list(f, "/workspace/many", 1, 30); len(names) != 30 || more {
		r.Errorf("%d of 30, more: %v", len(names), more)
	}
}

func readParts(r *rig) {
	_, f := r.filer()
	const text = "0123456789"
	r.write(f, "/workspace/f", text)
	for _, c := range []struct {
		offset, length int64
		want           string
	}{{0, -1, text}, {0, 0, ""}, {3, 4, "3456"}, {8, 100, "89"}, {10, -1, ""}, {99, 5, ""}, {4, -1, "456789"}} {
		var b bytes.Buffer
		info, err := f.ReadFile(r.ctx, "/workspace/f", c.offset, c.length, &b)
		if err != nil || b.String() != c.want || info.Size != 10 || info.Path != "/workspace/f" {
			r.Errorf("%d bytes from %d: %q, %+v, %v", c.length, c.offset, b.String(), info, err)
		}
	}
	_, err := f.ReadFile(r.ctx, "/workspace/f", -1, 1, io.Discard)
	r.wantKind("a negative offset", err, fault.Invalid)
	_, err = f.ReadFile(r.ctx, "/workspace", 0, -1, io.Discard)
	r.wantCode("read a folder", err, fault.Conflict, sandbox.CodeIsDir)
	_, err = f.ReadFile(r.ctx, "/workspace/missing", 0, -1, io.Discard)
	r.wantKind("read what is missing", err, fault.NotFound)
}

func readLinks(r *rig) {
	b, f := r.filer()
	host, words := r.secret()
	r.say(b, "echo inside > f; ln -s f l; ln -s /workspace/l ll; ln -s loop loop; ln -s "+host+" out; ln -s "+path.Dir(host)+" dir")
	r.wantText("through two links", r.read(f, "/workspace/ll"), "inside\n")
	if info, err := f.ReadFile(r.ctx, "/workspace/ll", 0, 0, io.Discard); err != nil || info.Type != sandbox.TypeFile || info.Path != "/workspace/ll" {
		r.Errorf("%+v, %v", info, err)
	}
	for _, name := range []string{"loop", "out", "dir/secret", "dir/../secret"} {
		var got bytes.Buffer
		if _, err := f.ReadFile(r.ctx, "/workspace/"+name, 0, -1, &got); err == nil || strings.Contains(got.String(), words) {
			r.Errorf("%s was read: %q", name, got.String())
		}
	}
	if _, err := f.WriteFile(r.ctx, "/workspace/out", 0, strings.NewReader("overwritten")); err == nil {
		r.Log("the link was written through, inside")
	}
}

func specialFiles(r *rig) {
	b, f := r.filer()
	r.need(r.h.Kernel, "a harness with a kernel")
	r.say(b, "mkfifo fifo; ln -s fifo link; ln -s /dev/zero zero; ln -s /proc/self/mem mem; ln -s /proc/self/environ environ; ln -s /proc/self/fd/0 channel")
	for _, name := range []string{"/workspace/fifo", "/workspace/link", "/workspace/zero", "/dev/zero", "/dev/tty", "/proc/self/environ", "/workspace/environ", "/workspace/mem", "/workspace/channel", "/proc/1/mem", "/proc/kmsg"} {
		err := r.soon("read "+name, func() error {
			_, err := f.ReadFile(r.ctx, name, 0, -1, io.Discard)
			return err
		})
		r.wantKind("read "+name, err, fault.Invalid, fault.Denied, fault.NotFound)
	}
	for _, name := range []string{"/workspace/fifo", "/workspace/link", "/dev/zero", "/proc/self/comm"} {
		err := r.soon("write "+name, func() error {
			_, err := f.WriteFile(r.ctx, name, 0, strings.NewReader("x"))
			return err
		})
		r.wantKind("write "+name, err, fault.Invalid, fault.Denied, fault.NotFound)
	}
	if info := r.stat(f, "/workspace/fifo"); info.Type != sandbox.TypeOther {
		r.Errorf("a FIFO: %+v", info)
	}
	r.wantCode("copy a FIFO", r.soon("copy a FIFO", func() error { return f.Copy(r.ctx, "/workspace/fifo", "/workspace/copy") }), fault.Invalid, sandbox.CodeNotFile)
	r.say(b, "mkdir tree; mkfifo tree/fifo; echo x > tree/file")
	if err := r.soon("copy a tree", func() error { return f.Copy(r.ctx, "/workspace/tree", "/workspace/tree2") }); err != nil {
		r.Fatalf("copy a tree with a FIFO: %v", err)
	}
	names, _ := r.list(f, "/workspace/tree2", 1, 0)
	r.wantText("the copy", strings.Join(names, " "), "file")
}

func writeModes(r *rig) {
	b, f := r.filer()
	info := r.write(f, "/workspace/new/dir/f", "one")
	if info.Mode != 0o644 || info.Size != 3 || info.Type != sandbox.TypeFile || info.Path != "/workspace/new/dir/f" || info.Name != "f" {
		r.Errorf("a new file: %+v", info)
	}
	info, err := f.WriteFile(r.ctx, "/workspace/new/dir/f", 0o750, strings.NewReader("#!/bin/sh\necho it runs\n"))
	if err != nil || info.Mode != 0o750 {
		r.Fatalf("%+v, %v", info, err)
	}
	r.wantText("the program", r.say(b, "/workspace/new/dir/f"), "it runs")
	if info := r.write(f, "/workspace/new/dir/f", "three"); info.Mode != 0o750 {
		r.Errorf("the mode was not kept: %+v", info)
	}
	if info := r.stat(f, "/workspace/new"); info.Type != sandbox.TypeDir || info.Mode != 0o755 {
		r.Errorf("a parent: %+v", info)
	}
	_, err = f.WriteFile(r.ctx, "/workspace/suid", 0o4755, strings.NewReader("x"))
	r.wantKind("a mode of more than permissions", err, fault.Invalid)
	_, err = f.WriteFile(r.ctx, "/workspace/new", 0, strings.NewReader("x"))
	r.wantCode("write a folder", err, fault.Conflict, sandbox.CodeIsDir)
	_, err = f.WriteFile(r.ctx, "/workspace/new/dir/f/below", 0, strings.NewReader("x"))
	r.wantCode("write below a file", err, fault.Conflict, sandbox.CodeNotDir)
	r.write(f, "/workspace/empty", "")
	r.wantText("an empty file", r.read(f, "/workspace/empty"), "")
}

func writeWhole(r *rig) {
	_, f := r.filer()
	r.write(f, "/workspace/d/f", "old")
	broken := errors.New("the body broke")
	for _, size := range []int{0, 1, 5000, 3 << 20} {
		body := io.MultiReader(bytes.NewReader(make([]byte, size)), iotest.ErrReader(broken))
		for _, name := range []string{"f", "g"} {
			if _, err := f.WriteFile(r.ctx, "/workspace/d/"+name, 0, body); !errors.Is(err, broken) {
				r.Errorf("%d bytes and an error: %v", size, err)
			}
		}
	}
	r.wantText("the file", r.read(f, "/workspace/d/f"), "old")
	// What was begun for it is cleared away, if not at once.
	r.eventually("nothing else is left", func() bool {
		names, _ := r.list(f, "/workspace/d", 1, 0)
		return slices.Equal(names, []string{"f"})
	})
}

func writeLink(r *rig) {
	b, f := r.filer()
	r.say(b, "mkdir real; echo old > real/f; ln -s real/f link; ln -s link second; ln -s real/new dangling")
	r.write(f, "/workspace/second", "new")
	r.wantText("the file", r.read(f, "/workspace/real/f"), "new")
	r.write(f, "/workspace/dangling", "made")
	r.wantText("what was not there", r.read(f, "/workspace/real/new"), "made")
	for _, name := range []string{"link", "second", "dangling"} {
		if info := r.stat(f, "/workspace/"+name); info.Type != sandbox.TypeLink {
			r.Errorf("%+v", info)
		}
	}
}
