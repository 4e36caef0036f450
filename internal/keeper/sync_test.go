package keeper

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/filesync"
	"github.com/aurea-dev/aurea/internal/live"
)

func (s *stage) write(id, path, text string) {
	s.t.Helper()
	if _, err := s.boxes.Files(id).WriteFile(context.Background(), path, 0o644, strings.NewReader(text)); err != nil {
		s.t.Fatal(err)
	}
}

// inside is what a file of a sandbox holds; "" is that it is not there.
func (s *stage) inside(id, path string) string {
	s.t.Helper()
	var b bytes.Buffer
	_, err := s.boxes.Files(id).ReadFile(context.Background(), path, 0, -1, &b)
	if err != nil && !fault.Is(err, fault.NotFound) {
		s.t.Fatal(err)
	}
	return b.String()
}

// stored is what an owner's session has under a path; "" is nothing.
func (s *stage) stored(owner, session, path string) string {
	s.t.Helper()
	_, b, err := s.OpenStored(as(owner), session, path, 0)
	if fault.Is(err, fault.NotFound) {
		return ""
	}
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	data, err := io.ReadAll(b)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(data)
}

func (s *stage) sync(id string, asked live.Sync) filesync.Result {
	s.t.Helper()
	r, err := s.SyncSandbox(as("o"), id, asked)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// TestFilesOutliveTheirSandbox stores files, ends the sandbox, and finds them in
// the next one of the session. Another owner's session of that name has nothing.
func TestFilesOutliveTheirSandbox(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x := s.create(live.Request{Name: "pad"})
	s.write(x.ID, "/workspace/notes.txt", "one")
	if r := s.sync(x.ID, live.Sync{}); !slices.Equal(r.Uploaded, []string{"notes.txt"}) || r.Failed != 0 {
		t.Errorf("the first pass: %+v", r)
	}
	if _, err := s.EndSandbox(as("o"), x.ID, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SyncSandbox(as("o"), x.ID, live.Sync{}); !fault.Is(err, fault.Gone) {
		t.Errorf("a pass over one that has ended: %v", err)
	}
	y := s.create(live.Request{})
	if r := s.sync(y.ID, live.Sync{Session: "pad"}); !slices.Equal(r.Downloaded, []string{"notes.txt"}) {
		t.Errorf("the pass of the next: %+v", r)
	}
	if got := s.inside(y.ID, "/workspace/notes.txt"); got != "one" {
		t.Errorf("the next has %q", got)
	}
	if mine, others := s.stored("o", "pad", "notes.txt"), s.stored("p", "pad", "notes.txt"); mine != "one" || others != "" {
		t.Errorf("the owner has %q, another %q", mine, others)
	}
	if _, err := s.SyncSandbox(as("p"), y.ID, live.Sync{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("another's pass over it: %v", err)
	}
}

// TestAnotherSessionDeletesNothing syncs one sandbox with two sessions in turn:
// what the second does not have was not deleted there.
func TestAnotherSessionDeletesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	x := s.create(live.Request{})
	s.write(x.ID, "/workspace/a", "a")
	for _, session := range []string{"first", "second", "first"} {
		if r := s.sync(x.ID, live.Sync{Session: session}); len(r.Deleted) != 0 {
			t.Errorf("with %s: %+v", session, r)
		}
		if in, out := s.inside(x.ID, "/workspace/a"), s.stored("o", session, "a"); in != "a" || out != "a" {
			t.Errorf("with %s: %q inside, %q stored", session, in, out)
		}
	}
}

// TestStoredFiles changes stored files from outside, and lets a conflict be
// settled for either side.
func TestStoredFiles(t *testing.T) {
	t.Parallel()
	s := newStage(t, func(c *Config) { c.FileLimits = filesync.Limits{Bytes: 50, FileBytes: 20} })
	x := s.create(live.Request{Name: "s"})
	put := func(path, text string) error {
		_, err := s.PutStored(as("o"), "s", path, 0, strings.NewReader(text))
		return err
	}
	if err := put("big", strings.Repeat("x", 21)); fault.CodeOf(err) != "file_too_large" {
		t.Errorf("a large file: %v", err)
	}
	if err := put("../up", "x"); fault.CodeOf(err) != "bad_path" {
		t.Errorf("a path that leads up: %v", err)
	}
	for _, keep := range []filesync.Winner{filesync.InSandbox, filesync.Stored} {
		path := "for-" + string(keep)
		s.write(x.ID, "/workspace/"+path, "in")
		if err := put(path, "outside"); err != nil {
			t.Fatal(err)
		}
		if r := s.sync(x.ID, live.Sync{Strategy: "ask"}); len(r.Conflicts) != 1 || r.Conflicts[0].Winner != "" || r.Conflicts[0].Stored.Session != "s" {
			t.Fatalf("a conflict: %+v", r)
		}
		if _, err := s.ResolveConflict(as("o"), x.ID, live.Sync{Strategy: "ask"}, path, keep); err != nil {
			t.Fatal(err)
		}
		want := map[filesync.Winner]string{filesync.InSandbox: "in", filesync.Stored: "outside"}[keep]
		if in, out := s.inside(x.ID, "/workspace/"+path), s.stored("o", "s", path); in != want || out != want {
			t.Errorf("%s was to be kept: %q inside, %q stored", keep, in, out)
		}
	}
	for i, path := range []string{"a", "b", "c"} {
		if err := put(path, strings.Repeat("x", 19)); (fault.CodeOf(err) == "quota") != (i == 2) {
			t.Errorf("%s: %v", path, err)
		}
	}
	u, limits, err := s.StoredUsage(as("o"), "s")
	if err != nil || u.Files != 4 || u.Bytes > 50 || limits.Bytes != 50 {
		t.Errorf("usage %+v of %+v: %v", u, limits, err)
	}
}
