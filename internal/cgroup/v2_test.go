package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/fault"
)

// recorded is a tree of files as a kernel of version 2 shows them. New groups
// are filled with what such a kernel puts there, for the controllers that the
// group above hands on.
type recorded struct {
	t    *testing.T
	root string
}

// record makes the tree: a root, and a service of systemd's in which we run.
func record(t *testing.T, controllers string) *recorded {
	t.Helper()
	r := &recorded{t: t, root: t.TempDir()}
	r.file("proc/self/cgroup", "0::/system.slice/aurea.service\n")
	r.file("proc/self/mountinfo", "24 30 0:22 / /proc rw,nosuid - proc proc rw\n"+
		"35 24 0:29 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n")
	for _, dir := range []string{"", "system.slice", "system.slice/aurea.service"} {
		r.fill(path.Join("sys/fs/cgroup", dir), controllers)
	}
	return r
}

func (r *recorded) file(name, content string) {
	r.t.Helper()
	full := filepath.Join(r.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(content), 0o644)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *recorded) text(name string) string {
	r.t.Helper()
	body, err := os.ReadFile(filepath.Join(r.root, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(body)
}

// fill puts a group's files into a folder.
func (r *recorded) fill(dir, controllers string) {
	files := map[string]string{
		"cgroup.controllers": controllers + "\n", "cgroup.subtree_control": "", "cgroup.procs": "", "cgroup.kill": "",
		"cgroup.freeze": "0\n", "cgroup.events": "populated 0\nfrozen 0\n",
		"cpu.stat": "usage_usec 0\nuser_usec 0\nsystem_usec 0\n",
	}
	for c, more := range map[string]map[string]string{
		"cpu":    {"cpu.max": "max 100000\n"},
		"memory": {"memory.max": "max\n", "memory.swap.max": "max\n", "memory.oom.group": "0\n", "memory.peak": "0\n", "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n"},
		"pids":   {"pids.max": "max\n", "pids.current": "0\n", "pids.events": "max 0\n"},
	} {
		if strings.Contains(controllers, c) {
			for name, content := range more {
				files[name] = content
			}
		}
	}
	for name, content := range files {
		r.file(path.Join(dir, name), content)
	}
}

// open opens a host on the tree.
func (r *recorded) open(owner string) *Host {
	r.t.Helper()
	h, err := open(r.root, owner, folders{
		make: func(root *os.Root, name string) error {
			if err := root.Mkdir(name, 0o755); err != nil {
				return err
			}
			// Each handed-on controller was written over the one before, so
			// what the kernel would add up is taken from the group above.
			given, err := root.ReadFile(path.Join(path.Dir(name), "cgroup.controllers"))
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(r.root, filepath.Join(root.Name(), name))
			if err != nil {
				return err
			}
			r.fill(rel, strings.TrimSpace(string(given)))
			return nil
		},
		remove: func(root *os.Root, name string) error {
			entries, err := fs.ReadDir(root.FS(), name)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if e.IsDir() {
					return errors.New("the group has groups")
				}
			}
			return root.RemoveAll(name)
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { h.Close() })
	return h
}

func TestV2LimitsAreWritten(t *testing.T) {
	t.Parallel()
	r := record(t, "cpuset cpu io memory pids")
	h := r.open("owner1")
	if len(h.Lacks()) != 0 || h.Version() != "v2" {
		t.Fatalf("%s lacks %v", h.Version(), h.Lacks())
	}
	g, err := h.Make("box1", Limits{MilliCPU: 1500, Memory: 64 << 20, Processes: 99})
	if err != nil {
		t.Fatal(err)
	}
	const dir = "sys/fs/cgroup/system.slice/aurea/owner1/box1/"
	for file, want := range map[string]string{
		"cpu.max": "150000 100000", "memory.max": "67108864", "memory.swap.max": "0\n", "memory.oom.group": "1\n", "pids.max": "99\n",
	} {
		// Writing to a plain file leaves the rest of what it held.
		if got := r.text(dir + file); !strings.HasPrefix(got, strings.TrimSpace(want)) {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	if got := g.Join(); !strings.HasSuffix(got.Into, strings.TrimSuffix(dir, "/")) || len(got.Files) != 0 {
		t.Errorf("join %+v", got)
	}
	if names, err := h.List(); err != nil || !cmp.Equal(names, []string{"box1"}) {
		t.Errorf("list: %v, %v", names, err)
	}
	if _, err := h.Make("box1", Limits{}); !fault.Is(err, fault.Conflict) {
		t.Errorf("the same again: %v", err)
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	if names, err := h.List(); err != nil || len(names) != 0 {
		t.Errorf("list after removal: %v, %v", names, err)
	}
	h.Close()
	if _, err := os.Stat(filepath.Join(r.root, "sys/fs/cgroup/system.slice/aurea")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the empty parent is left: %v", err)
	}
}

func TestV2Measures(t *testing.T) {
	t.Parallel()
	r := record(t, "cpu memory pids")
	h := r.open("owner")
	g, err := h.Make("a", Limits{Memory: 1})
	if err != nil {
		t.Fatal(err)
	}
	const dir = "sys/fs/cgroup/system.slice/aurea/owner/a/"
	r.file(dir+"cpu.stat", "usage_usec 1234\nuser_usec 1000\nsystem_usec 234\nnr_periods 0\n")
	r.file(dir+"memory.current", "2048\n")
	r.file(dir+"memory.peak", "4096\n")
	r.file(dir+"pids.current", "17\n")
	r.file(dir+"memory.events", "low 0\nhigh 0\nmax 7\noom 2\noom_kill 3\noom_group_kill 1\n")
	r.file(dir+"pids.events", "max 5\n")
	u, err := g.Usage()
	if want := (Usage{CPU: 1234 * time.Microsecond, Memory: 2048, PeakMemory: 4096, Processes: 17}); err != nil || u != want {
		t.Errorf("usage %+v, %v, want %+v", u, err, want)
	}
	if n, err := g.OOMKills(); err != nil || n != 3 {
		t.Errorf("oom kills: %d, %v", n, err)
	}
	if n, err := g.Refused(); err != nil || n != 5 {
		t.Errorf("refused: %d, %v", n, err)
	}
	// A kernel before 5.19 has no peak.
	if err := os.Remove(filepath.Join(r.root, dir, "memory.peak")); err != nil {
		t.Fatal(err)
	}
	if u, err := g.Usage(); err != nil || u.PeakMemory != -1 {
		t.Errorf("without a peak: %+v, %v", u, err)
	}
	if err := g.Kill(); err != nil || r.text(dir+"cgroup.kill") != "1" {
		t.Errorf("kill: %v, %q", err, r.text(dir+"cgroup.kill"))
	}
	r.file(dir+"cgroup.events", "populated 1\nfrozen 1\n")
	if err := g.Freeze(t.Context()); err != nil || !strings.HasPrefix(r.text(dir+"cgroup.freeze"), "1") {
		t.Errorf("freeze: %v", err)
	}
}

// What a host does not have is named, and asking for it is refused.
func TestLacks(t *testing.T) {
	t.Parallel()
	r := record(t, "cpu pids")
	h := r.open("owner")
	if h.Has(Memory) || !h.Has(CPU) || !h.Has(Processes) || h.Lacks()[Memory] == "" {
		t.Errorf("lacks %v", h.Lacks())
	}
	if _, err := h.Make("a", Limits{Memory: 1 << 20}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a memory limit: %v", err)
	}
	if g, err := h.Make("b", Limits{Processes: 5}); err != nil {
		t.Error(err)
	} else if n, err := g.OOMKills(); n != -1 || err != nil {
		t.Errorf("oom kills where there is no memory controller: %d, %v", n, err)
	}

	none, err := Open(t.TempDir(), "owner")
	if err != nil || none.Version() != "none" || len(none.Lacks()) != 3 {
		t.Errorf("without groups at all: %v, %v", none, err)
	}

	r = record(t, "cpu memory pids")
	r.file("proc/self/mountinfo", "35 24 0:29 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n")
	if h := r.open("owner"); h.Has(Memory) || !strings.Contains(h.Lacks()[Memory], "read-only") {
		t.Errorf("mounted read-only: %v", h.Lacks())
	}
}

// A name comes from outside: it must not become a path.
func TestNames(t *testing.T) {
	t.Parallel()
	h := record(t, "memory").open("owner")
	for _, name := range []string{"", ".", "..", "a/b", "../x", "A", "a-b", "cgroup.procs", strings.Repeat("a", 65)} {
		if _, err := h.Make(name, Limits{}); !fault.Is(err, fault.Invalid) {
			t.Errorf("make %q: %v", name, err)
		}
		if _, err := h.Here(name); !fault.Is(err, fault.Invalid) {
			t.Errorf("find %q: %v", name, err)
		}
		if _, err := Open(t.TempDir(), name); !fault.Is(err, fault.Invalid) {
			t.Errorf("open as %q: %v", name, err)
		}
	}
	for _, at := range []string{"/aurea/owner/a", "../aurea/owner/a", "aurea/other/a", "x/aurea/owner/b", "system.slice", "aurea/owner/a/../a", "xaurea/owner/a"} {
		if _, err := h.Find("a", Paths{"": at}); !fault.Is(err, fault.Invalid) {
			t.Errorf("find at %q: %v", at, err)
		}
	}
}

func TestMounts(t *testing.T) {
	t.Parallel()
	own := parseOwn("12:cpu,cpuacct:/user.slice\n4:memory:/docker/abc/x\n1:name=systemd:/\n0::/user.slice/session-1.scope\n")
	table := `30 23 0:26 / /sys/fs/cgroup ro,nosuid shared:4 - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:5 - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/systemd rw shared:6 - cgroup cgroup rw,xattr,name=systemd
33 30 0:31 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
34 30 0:32 /docker/abc /sys/fs/cgroup/mem\040ory rw shared:10 - cgroup cgroup rw,memory
35 30 0:32 / /other/memory rw shared:10 - cgroup cgroup rw,memory
36 30 0:33 / /sys/fs/cgroup/pids rw shared:11 - cgroup cgroup rw,pids
short line
`
	var got []string
	for _, m := range parseMounts(table, own) {
		got = append(got, strings.Join([]string{m.key, m.dir, m.own}, "|"))
	}
	want := []string{
		"|/sys/fs/cgroup/unified|user.slice/session-1.scope", "name=systemd|/sys/fs/cgroup/systemd|.",
		"cpu,cpuacct|/sys/fs/cgroup/cpu,cpuacct|user.slice", "memory|/sys/fs/cgroup/mem ory|x",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct{ root, group, want string }{
		{"/", "/", "."},
		{"/", "/a/b", "a/b"},
		{"/a", "/a", "."},
		{"/a", "/a/b", "b"},
		{"/a", "/ab", "."},
		{"/", "/../up", "."},
		{"/a", "/a/../../up", "."},
	} {
		if got := below(c.root, c.group); got != c.want {
			t.Errorf("%s below %s is %s, want %s", c.group, c.root, got, c.want)
		}
	}
}

func FuzzMounts(f *testing.F) {
	f.Add("4:memory:/docker/abc/x\n0::/a\n", "34 30 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
	f.Add("0::/../..\n", "34 30 0:32 / /x rw - cgroup2 cgroup rw\n")
	f.Fuzz(func(t *testing.T, groups, table string) {
		for _, m := range parseMounts(table, parseOwn(groups)) {
			if path.IsAbs(m.own) || m.own == ".." || strings.HasPrefix(m.own, "../") || path.Clean(m.own) != m.own {
				t.Errorf("%q is not below the mount", m.own)
			}
		}
	})
}

func FuzzField(f *testing.F) {
	f.Add([]byte("low 0\noom_kill 3\n"))
	f.Add([]byte("oom_kill\noom_kill x\n"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		_, _ = parseField(text, "file", "oom_kill")
	})
}
