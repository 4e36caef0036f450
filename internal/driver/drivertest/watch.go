package drivertest

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// watchChecks are the sentences on watching files.
func watchChecks() []check {
	return []check{
		{"Watch tells what happens to the entries of a folder", watchFolder},
		{"Watch of a tree tells of folders that come later", watchTree},
		{"Watch of one file tells of that alone", watchFile},
		{"Watch tells of WriteFile as of one change", watchWriteFile},
		{"a watch ends when it is closed", watchCloses},
		{"watches are bounded", watchBound},
		{"a watch that nobody reads holds up nothing", watchUnread},
	}
}

// seen reads changes until one fits, and returns it.
func (r *rig) seen(w sandbox.Watch, kind, name string) sandbox.Change {
	r.Helper()
	var before []sandbox.Change
	for {
		c, err := w.Next(r.ctx)
		if err != nil {
			r.Fatalf("wait for %s of %s, after %v: %v", kind, name, before, err)
		}
		if c.Kind == kind && c.Path == name {
			return c
		}
		before = append(before, c)
	}
}

func (r *rig) watch(f sandbox.Filer, name string, recursive bool) sandbox.Watch {
	r.Helper()
	w, err := f.Watch(r.ctx, name, recursive)
	if err != nil {
		r.Fatalf("watch %s: %v", name, err)
	}
	r.Cleanup(func() { _ = w.Close() })
	return w
}

func watchFolder(r *rig) {
	b, f := r.filer()
	r.say(b, "mkdir -p d/sub; echo old > d/old")
	w := r.watch(f, "/workspace/d", false)
	r.say(b, "echo x > d/new")
	if c := r.seen(w, sandbox.ChangeCreated, "/workspace/d/new"); c.From != "" || c.Type != sandbox.TypeFile {
		r.Errorf("%+v", c)
	}
	r.say(b, "echo more >> d/old")
	r.seen(w, sandbox.ChangeModified, "/workspace/d/old")
	if err := f.Move(r.ctx, "/workspace/d/old", "/workspace/d/renamed"); err != nil {
		r.Fatal(err)
	}
	if c := r.seen(w, sandbox.ChangeRenamed, "/workspace/d/renamed"); c.From != "/workspace/d/old" {
		r.Errorf("%+v", c)
	}
	if err := f.Move(r.ctx, "/workspace/d/renamed", "/workspace/out"); err != nil {
		r.Fatal(err)
	}
	r.seen(w, sandbox.ChangeDeleted, "/workspace/d/renamed")
	if err := f.Move(r.ctx, "/workspace/out", "/workspace/d/in"); err != nil {
		r.Fatal(err)
	}
	r.seen(w, sandbox.ChangeCreated, "/workspace/d/in")
	r.say(b, "echo x > d/sub/deep; mkdir d/folder; rm d/new")
	for {
		c, err := w.Next(r.ctx)
		if err != nil {
			r.Fatal(err)
		}
		if strings.Contains(c.Path, "deep") {
			r.Errorf("%+v is below another folder", c)
		}
		if c.Path == "/workspace/d/folder" && c.Type != sandbox.TypeDir {
			r.Errorf("%+v", c)
		}
		if c.Path == "/workspace/d/new" && c.Kind == sandbox.ChangeDeleted {
			break
		}
	}
	_, err := f.Watch(r.ctx, "/workspace/missing", false)
	r.wantKind("watch what is missing", err, fault.NotFound)
}

func watchTree(r *rig) {
	b, f := r.filer()
	r.say(b, "mkdir -p d/a; ln -s d link")
	w := r.watch(f, "/workspace/link", true)
	r.say(b, "echo x > d/a/f")
	r.seen(w, sandbox.ChangeCreated, "/workspace/link/a/f")
	// What is in a folder before anybody could watch it is told too.
	r.say(b, "mkdir -p d/b/c/e; echo x > d/b/c/e/f")
	r.seen(w, sandbox.ChangeCreated, "/workspace/link/b/c/e/f")
	r.say(b, "echo more >> d/b/c/e/f")
	r.seen(w, sandbox.ChangeModified, "/workspace/link/b/c/e/f")
	if err := f.Move(r.ctx, "/workspace/d/b", "/workspace/d/moved"); err != nil {
		r.Fatal(err)
	}
	if c := r.seen(w, sandbox.ChangeRenamed, "/workspace/link/moved"); c.From != "/workspace/link/b" || c.Type != sandbox.TypeDir {
		r.Errorf("%+v", c)
	}
	r.say(b, "echo x > d/moved/c/e/g")
	r.seen(w, sandbox.ChangeCreated, "/workspace/link/moved/c/e/g")
	if err := f.Move(r.ctx, "/workspace/d/moved", "/workspace/outside"); err != nil {
		r.Fatal(err)
	}
	r.seen(w, sandbox.ChangeDeleted, "/workspace/link/moved")
	r.say(b, "echo x > outside/c/e/h; echo x > d/last")
	for {
		c, err := w.Next(r.ctx)
		if err != nil {
			r.Fatal(err)
		}
		if strings.HasSuffix(c.Path, "/h") {
			r.Errorf("%+v has left what is watched", c)
		}
		if c.Path == "/workspace/link/last" {
			break
		}
	}
	if err := f.Remove(r.ctx, "/workspace/d/a", true); err != nil {
		r.Fatal(err)
	}
	r.seen(w, sandbox.ChangeDeleted, "/workspace/link/a")
}

func watchFile(r *rig) {
	b, f := r.filer()
	r.say(b, "echo x > f; echo x > other")
	w := r.watch(f, "/workspace/f", false)
	r.say(b, "echo y > other; echo y >> f")
	if c, err := w.Next(r.ctx); err != nil || c.Path != "/workspace/f" || c.Kind != sandbox.ChangeModified {
		r.Errorf("%+v, %v", c, err)
	}
	r.write(f, "/workspace/f", "replaced")
	r.write(f, "/workspace/f", "and again")
	if err := f.Remove(r.ctx, "/workspace/f", false); err != nil {
		r.Fatal(err)
	}
	r.seen(w, sandbox.ChangeDeleted, "/workspace/f")
}

func watchWriteFile(r *rig) {
	_, f := r.filer()
	w := r.watch(f, "/workspace", true)
	r.write(f, "/workspace/f", "one")
	r.write(f, "/workspace/f", "two")
	if err := f.Copy(r.ctx, "/workspace/f", "/workspace/end"); err != nil {
		r.Fatal(err)
	}
	var told []string
	for !slices.Contains(told, "created /workspace/end") {
		c, err := w.Next(r.ctx)
		if err != nil {
			r.Fatalf("after %q: %v", told, err)
		}
		told = append(told, c.Kind+" "+c.Path)
	}
	r.wantText("what was told", strings.Join(told, ", "), "created /workspace/f, modified /workspace/f, created /workspace/end")
}

func watchCloses(r *rig) {
	_, f := r.filer()
	w := r.watch(f, "/workspace", true)
	ended := make(chan error, 1)
	go func() {
		_, err := w.Next(r.ctx)
		ended <- err
	}()
	for range 2 {
		if err := w.Close(); err != nil {
			r.Errorf("close: %v", err)
		}
	}
	if err := <-ended; !errors.Is(err, io.EOF) {
		r.Errorf("a call that waited: %v", err)
	}
	if _, err := w.Next(r.ctx); !errors.Is(err, io.EOF) {
		r.Errorf("next: %v", err)
	}
}

func watchBound(r *rig) {
	_, f := r.filer()
	var all []sandbox.Watch
	for range sandbox.MaxWatches {
		all = append(all, r.watch(f, "/workspace", false))
	}
	_, err := f.Watch(r.ctx, "/workspace", false)
	r.wantKind("one more", err, fault.Exhausted)
	for _, w := range all {
		if err := w.Close(); err != nil {
			r.Error(err)
		}
	}
	r.eventually("there is room again", func() bool {
		w, err := f.Watch(r.ctx, "/workspace", false)
		if err != nil {
			return false
		}
		return w.Close() == nil
	})
}

func watchUnread(r *rig) {
	b, f := r.filer()
	w := r.watch(f, "/workspace", true)
	r.need(r.h.Kernel, "a harness with a kernel")
	const long = "a-name-that-is-long-so-that-changes-of-it-take-much-room-in-whatever-they-are-kept-in-until-somebody-reads-them"
	const many = 6000
	r.say(b, fmt.Sprintf("i=0; while [ $i -lt %d ]; do : > %s$i; i=$((i+1)); done", many, long))
	r.write(f, "/workspace/f", "x")
	r.wantText("the file", r.read(f, "/workspace/f"), "x")
	// All were told, or that some were missed.
	for created := 0; created < many; {
		c, err := w.Next(r.ctx)
		if err != nil {
			r.Fatalf("after %d: %v", created, err)
		}
		switch c.Kind {
		case sandbox.ChangeOverflow:
			return
		case sandbox.ChangeCreated:
			created++
		}
	}
}
