package filesync

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func same(t testing.TB, what string, got, want map[string]string) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestBothWays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Limits{})
	b := newBox(w.clock)
	b.put("a", "from the sandbox")
	b.put("d/x", "deep")
	w.store1("s", "b", "from outside")
	r := w.must(b, request())
	all := map[string]string{"a": "from the sandbox", "d/x": "deep", "b": "from outside"}
	same(t, "sandbox", b.texts(), all)
	same(t, "stored", w.stored("s"), all)
	if !slices.Equal(r.Uploaded, []string{"a", "d/x"}) || !slices.Equal(r.Downloaded, []string{"b"}) || len(r.Conflicts) > 0 {
		t.Errorf("got %+v", r)
	}
	if r := w.must(b, request()); !r.Quiet() {
		t.Errorf("a second pass did %+v", r)
	}

	// Deletions and changes go over, each way; another sandbox gets all of it.
	w.clock.tick(time.Minute)
	b.remove("a")
	b.put("d/x", "deeper")
	if err := w.shelf.Delete(t.Context(), "s", "b", -1); err != nil {
		t.Fatal(err)
	}
	r = w.must(b, request())
	all = map[string]string{"d/x": "deeper"}
	same(t, "sandbox", b.texts(), all)
	same(t, "stored", w.stored("s"), all)
	if !slices.Equal(r.Deleted, []string{"b", "a"}) {
		t.Errorf("deleted %q", r.Deleted)
	}
	other, req := newBox(w.clock), request()
	req.Sandbox = "b2"
	w.must(other, req)
	same(t, "another sandbox", other.texts(), all)
	req.Session = "another"
	w.must(newBox(w.clock), req)
	same(t, "another session", w.stored("another"), map[string]string{})
}

func TestUnchangedFilesAreNotRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Limits{})
	b := newBox(w.clock)
	b.put("a", "x")
	w.clock.tick(time.Minute)
	w.must(b, request())
	b.read = 0
	w.must(b, request())
	if b.read != 0 {
		t.Errorf("%d files were read", b.read)
	}
	req := request()
	req.Thorough = true
	w.must(b, req)
	if b.read != 1 {
		t.Errorf("%d files were read, want 1", b.read)
	}
	// A change within the moment in which it was synced shows no other time.
	b.put("a", "y")
	w.must(b, request())
	b.files[root+"/a"] = boxFile{[]byte("z"), 0o644, b.files[root+"/a"].at}
	w.must(b, request())
	same(t, "stored", w.stored("s"), map[string]string{"a": "z"})
}

func TestTheExecutableBitIsAChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Limits{})
	b := newBox(w.clock)
	b.put("run.sh", "#!/bin/sh")
	w.must(b, request())
	w.clock.tick(time.Minute)
	b.files[root+"/run.sh"] = boxFile{[]byte("#!/bin/sh"), 0o755, b.files[root+"/run.sh"].at}
	w.must(b, request())
	other, req := newBox(w.clock), request()
	req.Sandbox = "b2"
	w.must(other, req)
	if mode := other.files[root+"/run.sh"].mode; mode != 0o755 {
		t.Errorf("mode %o", mode)
	}
}

// conflicting has "f" changed on both sides, outside first.
func conflicting(t *testing.T, base, outside, inside string) (*world, *box) {
	t.Helper()
	w := newWorld(t, Limits{})
	b := newBox(w.clock)
	b.put("f", base)
	w.must(b, request())
	w.clock.tick(time.Minute)
	w.store1("s", "f", outside)
	w.clock.tick(time.Minute)
	b.put("f", inside)
	return w, b
}

func TestLastWriteWins(t *testing.T) {
	t.Parallel()
	w, b := conflicting(t, "base", "outside", "inside")
	r := w.must(b, request())
	if len(r.Conflicts) != 1 || r.Conflicts[0].Winner != InSandbox {
		t.Errorf("got %+v", r.Conflicts)
	}
	same(t, "stored", w.stored("s"), map[string]string{"f": "inside"})
	wantVersion(t, w, "outside")
	// The other way round, and with a clock in the sandbox that is ahead.
	w.clock.tick(time.Minute)
	b.put("f", "inside again")
	b.files[root+"/f"] = boxFile{[]byte("inside again"), 0o644, w.clock.now()}
	w.clock.tick(time.Minute)
	w.store1("s", "f", "outside again")
	r = w.must(b, request())
	if len(r.Conflicts) != 1 || r.Conflicts[0].Winner != Stored {
		t.Errorf("got %+v", r.Conflicts)
	}
	same(t, "sandbox", b.texts(), map[string]string{"f": "outside again"})
	wantVersion(t, w, "inside again")
}

func wantVersion(t *testing.T, w *world, text string) {
	t.Helper()
	list, err := w.shelf.Versions(t.Context(), "s", "f", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if f.SHA256 == blob.Digest([]byte(text)) {
			return
		}
	}
	t.Errorf("%q is not among %+v", text, list)
}

func TestAChangeWinsOverADeletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Limits{})
	b := newBox(w.clock)
	b.put("f", "1")
	b.put("g", "1")
	w.must(b, request())
	w.clock.tick(time.Minute)
	b.remove("f")
	w.store1("s", "f", "2")
	b.put("g", "2")
	if err := w.shelf.Delete(t.Context(), "s", "g", -1); err != nil {
		t.Fatal(err)
	}
	w.must(b, request())
	same(t, "sandbox", b.texts(), map[string]string{"f": "2", "g": "2"})
	same(t, "stored", w.stored("s"), map[string]string{"f": "2", "g": "2"})
}

func TestAskLeavesItUntilItIsResolved(t *testing.T) {
	t.Parallel()
	for winner, want := range map[Winner]string{InSandbox: "a\nb\nC\n", Stored: "A\nb\nc\n", Merged: "A\nb\nC\n"} {
		w, b := conflicting(t, "a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n")
		b.put("g", "goes on")
		req := request()
		req.Strategy = Ask
		for range 2 {
			r := w.must(b, req)
			if len(r.Conflicts) != 1 || r.Conflicts[0].Winner != Nobody || r.Conflicts[0].Path != "f" {
				t.Fatalf("got %+v", r.Conflicts)
			}
			same(t, "sandbox", b.texts(), map[string]string{"f": "a\nb\nC\n", "g": "goes on"})
			same(t, "stored", w.stored("s"), map[string]string{"f": "A\nb\nc\n", "g": "goes on"})
		}
		if _, err := w.Resolve(t.Context(), b, req, "f", winner); err != nil {
			t.Fatal(err)
		}
		same(t, "sandbox", b.texts(), map[string]string{"f": want, "g": "goes on"})
		same(t, "stored", w.stored("s"), map[string]string{"f": want, "g": "goes on"})
		if r := w.must(b, req); len(r.Conflicts) > 0 {
			t.Errorf("it is still there: %+v", r.Conflicts)
		}
	}
}

func TestAutoMerge(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ base, outside, inside, want string }{
		"apart":          {"a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n", "A\nb\nC\n"},
		"the same lines": {"a\nb\nc\n", "a\nX\nc\n", "a\nY\nc\n", "a\nY\nc\n"}, // the last write
		"no text":        {"a\x00b\nc\n", "A\x00b\nc\n", "a\x00b\nC\n", "a\x00b\nC\n"},
	} {
		w, b := conflicting(t, tc.base, tc.outside, tc.inside)
		req := request()
		req.Strategy = AutoMerge
		w.must(b, req)
		same(t, name+", sandbox", b.texts(), map[string]string{"f": tc.want})
		same(t, name+", stored", w.stored("s"), map[string]string{"f": tc.want})
		wantVersion(t, w, tc.outside)
		wantVersion(t, w, tc.inside)
	}
}

func TestTheQuotaIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Limits{Bytes: 100, FileBytes: 60, Files: 5})
	b := newBox(w.clock)
	b.put("large", strings.Repeat("x", 61))
	b.put("one", strings.Repeat("1", 60))
	b.put("two", strings.Repeat("2", 50))
	b.put("zwei", "small")
	r, err := w.Sync(t.Context(), b, request())
	if err != nil || r.Failed != 2 || r.Errors[0].Code != "file_too_large" || r.Errors[1].Code != "quota" || !slices.Equal(r.Uploaded, []string{"one", "zwei"}) {
		t.Fatalf("got %+v, %v", r, err)
	}
	if there, _ := w.blobs.Has(t.Context(), blob.Digest([]byte(strings.Repeat("2", 50)))); there {
		t.Error("bytes over the quota were stored")
	}
	// Older versions make room for newer ones, and never count beyond it.
	b.remove("large")
	b.remove("two")
	for i := range 10 {
		w.clock.tick(time.Minute)
		b.put("one", strings.Repeat(fmt.Sprint(i), 40))
		w.must(b, request())
		if u, err := w.shelf.Usage(t.Context(), "s"); err != nil || u.Bytes+u.Older > 100 {
			t.Fatalf("the session keeps %+v, %v", u, err)
		}
	}
	for i := range 5 {
		b.put(fmt.Sprint("more", i), "")
	}
	if r, err = w.Sync(t.Context(), b, request()); err != nil || r.Failed == 0 {
		t.Errorf("more files than may be: %+v, %v", r, err)
	}
	if u, _ := w.shelf.Usage(t.Context(), "s"); u.Files > 5 {
		t.Errorf("the session keeps %+v", u)
	}
	if _, err := w.shelf.Put(t.Context(), "s", "x", 0, -1, strings.NewReader(strings.Repeat("x", 61))); !fault.Is(err, fault.TooLarge) {
		t.Errorf("got %v", err)
	}
}

func TestHostileNamesAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Limits{})
	b := newBox(w.clock)
	b.put("good", "x")
	b.put("a\nb", "x")
	b.put("e\u0301", "x")
	b.put("\xff", "x")
	b.put(`..\up`, "x")
	b.other[root+"/link"], b.other[root+"/pipe"] = sandbox.TypeLink, sandbox.TypeOther
	for _, lie := range []string{"/etc/passwd", "..", "../../etc/shadow", "/workspace/..", "", "/workspace/good/../../x"} {
		b.lie = append(b.lie, sandbox.FileInfo{Path: lie, Type: sandbox.TypeFile, Size: 1})
	}
	r, err := w.Sync(t.Context(), b, request())
	if err != nil {
		t.Fatal(err)
	}
	same(t, "stored", w.stored("s"), map[string]string{"good": "x"})
	for _, f := range r.Errors {
		if strings.Contains(f.Path, "..") && !strings.Contains(f.Path, `\`) {
			t.Errorf("looked at %q", f.Path)
		}
	}
	for _, name := range []string{"../x", "/x", "a//b", "a\x00"} {
		if _, err := w.shelf.Put(t.Context(), "s", name, 0, -1, strings.NewReader("x")); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	// What stands in the way is not written over.
	w.store1("s", "link", "stored")
	r, err = w.Sync(t.Context(), b, request())
	if err != nil || !slices.ContainsFunc(r.Errors, func(f Failure) bool { return f.Path == "link" }) {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, there := b.texts()["link"]; there {
		t.Error("the link was written over")
	}
}

func TestIgnoredFilesAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Limits{})
	b := newBox(w.clock)
	for _, name := range []string{".git/config", "node_modules/x/index.js", "src/node_modules/y", "a.log", "keep.log", "build/out", "src/build/out", "src/a.go"} {
		b.put(name, name)
	}
	b.put(IgnoreFile, "*.log\n!keep.log\n/build/\n")
	w.must(b, request())
	want := []string{IgnoreFile, "keep.log", "src/a.go", "src/build/out"}
	if got := slices.Sorted(maps.Keys(w.stored("s"))); !slices.Equal(got, want) {
		t.Errorf("stored %q, want %q", got, want)
	}
	// What becomes ignored is deleted nowhere.
	w.clock.tick(time.Minute)
	b.put(IgnoreFile, "src/\n")
	b.remove("src/a.go")
	w.must(b, request())
	if _, there := w.stored("s")["src/a.go"]; !there {
		t.Error("an ignored file was deleted")
	}
}

func TestAFolderMakesRoomForAFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Limits{})
	one, two := newBox(w.clock), newBox(w.clock)
	second := request()
	second.Sandbox = "b2"
	one.put("a/b", "1")
	w.must(one, request())
	w.must(two, second)
	w.clock.tick(time.Minute)
	one.remove("a/b")
	one.put("a", "2")
	w.must(one, request())
	w.must(two, second)
	same(t, "the other", two.texts(), map[string]string{"a": "2"})
}

func TestDiffOfVersions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Limits{})
	w.store1("s", "f", "a\nb\n")
	w.store1("s", "f", "a\nc\n")
	w.store1("s", "f", "\x00")
	if got, err := w.shelf.Diff(t.Context(), "s", "f", 1, 2); err != nil || !strings.Contains(got, "-b\n+c\n") {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := w.shelf.Diff(t.Context(), "s", "f", 1, 3); !fault.Is(err, fault.Invalid) {
		t.Errorf("got %v", err)
	}
	if _, err := w.shelf.Diff(t.Context(), "s", "f", 1, 9); !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v", err)
	}
}

// away is a sandbox that does not answer once it was listed.
type away struct{ *box }

func (away) ReadFile(context.Context, string, int64, int64, io.Writer) (sandbox.FileInfo, error) {
	return sandbox.FileInfo{}, fault.New(fault.Unavailable, "gone")
}

func TestASandboxThatIsAwayEndsThePass(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Limits{})
	b := newBox(w.clock)
	for i := range 50 {
		b.put(fmt.Sprint(i), "x")
	}
	r, err := w.Sync(t.Context(), away{b}, request())
	if !fault.Is(err, fault.Unavailable) || r.Failed > 10 {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Limits{})
	for _, change := range []func(*Request){
		func(r *Request) { r.Session = "" }, func(r *Request) { r.Sandbox = "" }, func(r *Request) { r.Root = "here" },
		func(r *Request) { r.Root = "/a/../b" }, func(r *Request) { r.Strategy = "dice" },
	} {
		req := request()
		change(&req)
		if _, err := w.Sync(t.Context(), newBox(w.clock), req); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", req, err)
		}
	}
}
