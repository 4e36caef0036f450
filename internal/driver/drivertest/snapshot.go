package drivertest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// snapshotChecks are the sentences on snapshots, and on what goes on from them.
func snapshotChecks() []check {
	return []check{
		{"a snapshot can be started from", snapshots},
		{"a command goes on from a snapshot without a gap or a repeat", restoresCount},
		{"a command goes on in every fork", forks},
		{"a sandbox that is put aside goes on where it was", restoresAside},
		{"a paused sandbox stays paused behind its snapshot", snapshotPaused},
		{"what was started, or written, behind a snapshot is not in it", snapshotMoment},
		{"the environment is that of who goes on", restoresEnv},
		{"a folder that exists is not written to", snapshotFolder},
		{"a snapshot that is torn or changed is refused", tornSnapshots},
		{"a snapshot that does not fit is refused", foreignSnapshots},
		{"a snapshot that is not declared is refused", noSnapshot},
	}
}

// snapshot takes one, and returns its folder.
func (r *rig) snapshot(b sandbox.Box, o sandbox.SnapshotOptions) (string, sandbox.Snapshot) {
	r.Helper()
	saver, ok := b.(sandbox.Snapshotter)
	if !ok {
		r.Fatal("the driver declares snapshots, and its boxes have none")
	}
	where := filepath.Join(folder(r.T), "snapshot")
	made, err := saver.Snapshot(r.ctx, where, o)
	if err != nil {
		r.Fatalf("snapshot: %v", err)
	}
	if made.Generation != o.Generation || made.Bytes <= 0 {
		r.Errorf("made %+v", made)
	}
	if info, err := os.Stat(where); err != nil || info.Mode().Perm() != 0o700 {
		r.Errorf("the folder: %v, %v", info, err)
	}
	return where, made
}

// restore makes a sandbox that goes on from a snapshot, with a new id.
func (r *rig) restore(where string) sandbox.Box {
	r.Helper()
	spec := r.spec()
	spec.Restore = where
	return r.create(spec)
}

func snapshots(r *rig) {
	r.need(r.d.Capabilities().Snapshot, "snapshots")
	b := r.box()
	r.say(b, "echo saved > saved.txt")
	where, _ := r.snapshot(b, sandbox.SnapshotOptions{})
	r.wantText("the file where it was", r.say(b, "cat saved.txt"), "saved")
	r.wantText("the file", r.say(r.restore(where), "cat saved.txt"), "saved")
}

// reach reads until stdout holds the words, from an offset on, and returns where
// the reader is then.
func (r *rig) reach(p sandbox.Process, from sandbox.Offsets, words string) (string, sandbox.Offsets) {
	r.Helper()
	c := collector{at: from}
	for !strings.Contains("\n"+c.stdout.String(), "\n"+words) {
		f, err := p.Next(r.ctx)
		if err != nil {
			r.Fatalf("read until %q, after %q: %v", words, c.stdout.String(), err)
		}
		if err := c.add(f); err != nil {
			r.Fatal(err)
		}
	}
	return c.stdout.String(), c.at
}

func (r *rig) attach(b sandbox.Box, id string, from sandbox.Offsets) sandbox.Process {
	r.Helper()
	p, err := b.Attach(r.ctx, id, from)
	if err != nil {
		r.Fatalf("attach at %+v: %v", from, err)
	}
	return p
}

func restoresCount(r *rig) {
	r.need(r.d.Capabilities().Snapshot, "snapshots")
	b := r.box()
	spec, says := r.counter(12)
	p := r.exec(b, spec)
	text, at := r.reach(p, sandbox.Offsets{}, "4\n")
	where, made := r.snapshot(b, sandbox.SnapshotOptions{Generation: 7})
	if made.Offsets[p.ID()] != at {
		r.Errorf("the reader was at %+v, the snapshot says %+v", at, made.Offsets)
	}
	more, _ := r.reach(p, at, "6\n") // which runs on
	r.wantText("the count goes on", (text + more)[:len("0\n1\n2\n3\n4\n5\n6\n")], "0\n1\n2\n3\n4\n5\n6\n")
	if err := r.d.Destroy(r.ctx, b.Handle()); err != nil {
		r.Fatalf("destroy: %v", err)
	}
	again := sandbox.Spec{ID: b.Handle().ID, Image: r.h.Image, Restore: where, Generation: 7}
	b = r.create(again)
	p = r.attach(b, p.ID(), at)
	r.wantText("the rest of the count", r.collect(p, at).stdout, says[at.Stdout:])
	if exit := r.wait(p); exit.Code != 0 {
		r.Errorf("exit %+v", exit)
	}
	r.say(b, "true")
}

func forks(r *rig) {
	r.need(r.d.Capabilities().Snapshot, "snapshots")
	b := r.box()
	spec, says := r.counter(10)
	p := r.exec(b, spec)
	_, at := r.reach(p, sandbox.Offsets{}, "3\n")
	where, _ := r.snapshot(b, sandbox.SnapshotOptions{})
	var group sync.WaitGroup
	for range 4 {
		f := r.restore(where)
		q := r.attach(f, p.ID(), at)
		group.Go(func() {
			var c collector
			c.at = at
			for {
				frame, err := q.Next(r.ctx)
				if err != nil {
					break
				}
				if err := c.add(frame); err != nil {
					r.Error(err)
				}
			}
			if got := c.stdout.String(); got != says[at.Stdout:] {
				r.Errorf("a fork says %q", got)
			}
			if exit, err := q.Wait(r.ctx); err != nil || exit.Code != 0 {
				r.Errorf("a fork ends with %+v, %v", exit, err)
			}
		})
	}
	r.wantText("the count where it was", r.collect(p, at).stdout, says[at.Stdout:])
	group.Wait()
}

func restoresAside(r *rig) {
	r.need(r.d.Capabilities().Snapshot, "snapshots")
	b := r.box()
	spec := r.sh("echo one; cat; exit 5")
	spec.Stdin = true
	p := r.exec(b, spec)
	at := r.until(p, "one\n")
	where, _ := r.snapshot(b, sandbox.SnapshotOptions{Aside: true})
	_, err := b.Exec(r.ctx, r.sh("true"))
	r.wantPaused("Exec", err)
	if err := r.d.Destroy(r.ctx, b.Handle()); err != nil {
		r.Fatalf("destroy: %v", err)
	}
	b = r.restore(where)
	p = r.attach(b, p.ID(), at)
	if err := p.Write(r.ctx, []byte("two\n")); err != nil {
		r.Fatalf("write: %v", err)
	}
	if err := p.CloseInput(r.ctx); err != nil {
		r.Fatalf("close input: %v", err)
	}
	r.wantText("the rest", r.collect(p, at).stdout, "two\n")
	if exit := r.wait(p); exit.Code != 5 {
		r.Errorf("exit %+v", exit)
	}
}

func snapshotPaused(r *rig) {
	r.need(r.d.Capabilities().Snapshot && r.d.Capabilities().Pause, "snapshots and pause")
	b := r.box()
	r.say(b, "echo saved > saved.txt")
	r.pause(b)
	where, _ := r.snapshot(b, sandbox.SnapshotOptions{})
	_, err := b.Exec(r.ctx, r.sh("true"))
	r.wantPaused("Exec", err)
	r.wantText("the file", r.say(r.restore(where), "cat saved.txt"), "saved")
	r.resume(b)
	r.wantText("the file where it was", r.say(b, "cat saved.txt"), "saved")
}

func snapshotMoment(r *rig) {
	r.need(r.d.Capabilities().Snapshot, "snapshots")
	b := r.box()
	r.say(b, "echo early > file")
	where, _ := r.snapshot(b, sandbox.SnapshotOptions{})
	r.say(b, "echo late > file")
	if err := b.Put(r.ctx, "/workspace", bytes.NewReader(tarOf(r, file("put", "late")))); err != nil {
		r.Fatalf("put: %v", err)
	}
	p := r.exec(b, r.sh("true"))
	f := r.restore(where)
	r.wantText("the file", r.say(f, "cat file; cat put 2>/dev/null; true"), "early")
	_, err := f.Attach(r.ctx, p.ID(), sandbox.Offsets{})
	r.wantKind("Attach", err, fault.NotFound)
}

func restoresEnv(r *rig) {
	r.need(r.d.Capabilities().Snapshot, "snapshots")
	spec := r.spec()
	spec.Env = map[string]string{"TOKEN": "secret", "COLOUR": "red"}
	b := r.create(spec)
	r.wantText("the environment", r.say(b, "echo $TOKEN $COLOUR"), "secret red")
	where, _ := r.snapshot(b, sandbox.SnapshotOptions{})
	fork := r.spec()
	fork.Restore = where
	fork.Env = map[string]string{"COLOUR": "blue"}
	r.wantText("the environment of a fork", r.say(r.create(fork), "echo $TOKEN $COLOUR"), "blue")
}

func snapshotFolder(r *rig) {
	r.need(r.d.Capabilities().Snapshot, "snapshots")
	b := r.box()
	where := folder(r.T)
	_, err := b.(sandbox.Snapshotter).Snapshot(r.ctx, where, sandbox.SnapshotOptions{})
	r.wantKind("Snapshot", err, fault.Conflict)
	if left, err := os.ReadDir(where); err != nil || len(left) > 0 {
		r.Errorf("the folder has %v, %v", left, err)
	}
	r.say(b, "true")
}

// wantRefused fails unless Create refuses the spec with the code, and leaves
// nothing.
func (r *rig) wantRefused(what string, spec sandbox.Spec, code string) {
	r.Helper()
	spec.ID = r.newID()
	_, err := r.d.Create(r.ctx, spec, r.sweep)
	r.wantKind(what, err, fault.Invalid)
	if got := fault.CodeOf(err); got != code {
		r.Errorf("%s: code %q, want %q: %v", what, got, code, err)
	}
	if r.listed(spec.ID) {
		r.Errorf("%s: a sandbox is left", what)
	}
}

func tornSnapshots(r *rig) {
	r.need(r.d.Capabilities().Snapshot, "snapshots")
	where, _ := r.snapshot(r.box(), sandbox.SnapshotOptions{})
	spec := sandbox.Spec{Image: r.h.Image, Restore: where}
	r.create(sandbox.Spec{ID: r.newID(), Image: r.h.Image, Restore: where}) // it is good, and was read once
	files, err := os.ReadDir(where)
	if err != nil || len(files) == 0 {
		r.Fatal(files, err)
	}
	for _, f := range files {
		if f.IsDir() {
			continue // what others have too
		}
		path := filepath.Join(where, f.Name())
		whole, err := os.ReadFile(path)
		if err != nil {
			r.Fatal(err)
		}
		changed := bytes.Clone(whole)
		changed[len(changed)/2] ^= 1
		for what, body := range map[string][]byte{"torn": whole[:len(whole)/2], "empty": {}, "changed": changed} {
			if err := os.WriteFile(path, body, 0o600); err != nil {
				r.Fatal(err)
			}
			if what == "changed" && strings.HasSuffix(f.Name(), ".json") {
				continue // who can change the manifest can make a good one
			}
			r.wantRefused(what+" "+f.Name(), spec, sandbox.CodeSnapshotBroken)
		}
		if err := os.Remove(path); err != nil {
			r.Fatal(err)
		}
		r.wantRefused("without "+f.Name(), spec, sandbox.CodeSnapshotBroken)
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			r.Fatal(err)
		}
	}
	r.create(sandbox.Spec{ID: r.newID(), Image: r.h.Image, Restore: where}) // good again
	r.wantRefused("an empty folder", sandbox.Spec{Image: r.h.Image, Restore: folder(r.T)}, sandbox.CodeSnapshotBroken)
	r.wantRefused("no folder", sandbox.Spec{Image: r.h.Image, Restore: filepath.Join(where, "nothing")}, sandbox.CodeSnapshotBroken)
}

func foreignSnapshots(r *rig) {
	r.need(r.d.Capabilities().Snapshot && r.d.Capabilities().Disk, "snapshots and a limit on the disk")
	limited := r.spec()
	limited.Limits.Disk = 64 << 20
	where, _ := r.snapshot(r.create(limited), sandbox.SnapshotOptions{Generation: 3})
	limited.Restore, limited.Generation = where, 3
	other := limited
	other.Generation = 2
	r.wantRefused("another generation", other, sandbox.CodeSnapshotMismatch)
	other = limited
	other.Limits.Disk = 128 << 20
	r.wantRefused("another limit", other, sandbox.CodeSnapshotMismatch)
	limited.ID = r.newID()
	r.say(r.create(limited), "true")
}

func noSnapshot(r *rig) {
	if r.d.Capabilities().Snapshot {
		r.Skip("the driver declares snapshots")
	}
	if saver, ok := r.box().(sandbox.Snapshotter); ok {
		_, err := saver.Snapshot(r.ctx, filepath.Join(folder(r.T), "snapshot"), sandbox.SnapshotOptions{})
		r.wantKind("Snapshot", err, fault.Invalid)
	}
	spec := r.spec()
	spec.Restore = "/nowhere"
	r.refused(spec, "snapshot_unsupported")
}
