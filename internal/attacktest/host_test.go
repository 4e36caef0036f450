package attacktest

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// host is what is seen of the host at one moment, as far as it is ours: others
// work on the machine too.
type host struct {
	processes []string          // descendants of this process, and who names the folder
	mounts    []string          // that name the folder
	folder    []string          // what is in the driver's folder
	groups    []string          // control groups of ours
	settings  map[string]string // of the kernel, and the bait's content
	files     int               // descriptors of this process
	tasks     int               // goroutines of this process
	heap      int64             // bytes that this process uses
}

// look takes a picture. state is the driver's folder, bait a folder with files
// that must stay as they are. The processes of the neighbour are left out: it
// lives, so they come and go; that it lives is asked of itself.
func look(t *testing.T, state, bait, neighbour string) host {
	t.Helper()
	h := host{settings: map[string]string{}}
	for pid, p := range processTable() {
		if p.below(neighbour) {
			continue
		}
		if p.ours() || bytes.Contains(p.command, []byte(state)) {
			h.processes = append(h.processes, fmt.Sprintf("%d %s", pid, p.name))
		}
	}
	slices.Sort(h.processes)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, state) {
			h.mounts = append(h.mounts, line)
		}
	}
	h.folder = names(filepath.Join(state, "box"))
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // groups of others come and go
		}
		if strings.Contains(path, "/aurea") && strings.Contains(path, filepath.Base(state)) {
			h.groups = append(h.groups, path)
		}
		return nil
	})
	for _, path := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname",
		"/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/randomize_va_space", "/proc/swaps", "/etc/passwd",
	} {
		body, _ := os.ReadFile(path) // what is missing must stay missing
		h.settings[path] = string(body)
	}
	for _, name := range names(bait) {
		info, err := os.Lstat(filepath.Join(bait, name))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := os.ReadFile(filepath.Join(bait, name))
		h.settings[name] = fmt.Sprintf("%v %d %s", info.Mode(), info.Sys().(*syscall.Stat_t).Uid, body)
	}
	h.files = len(names("/proc/self/fd"))
	h.tasks = runtime.NumGoroutine()
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	h.heap = int64(memory.HeapAlloc)
	return h
}

func names(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// same fails the test where the host has changed.
func (h host) same(t *testing.T, after host) {
	t.Helper()
	for _, c := range []struct {
		what          string
		before, after []string
	}{
		{"processes", h.processes, after.processes},
		{"mounts", h.mounts, after.mounts},
		{"the driver's folder", h.folder, after.folder},
		{"control groups", h.groups, after.groups},
	} {
		if !slices.Equal(c.before, c.after) {
			t.Errorf("%s changed:\nbefore %q\nafter  %q", c.what, c.before, c.after)
		}
	}
	if !maps.Equal(h.settings, after.settings) {
		for name := range after.settings {
			if h.settings[name] != after.settings[name] {
				t.Errorf("%s changed:\nbefore %q\nafter  %q", name, h.settings[name], after.settings[name])
			}
		}
	}
	const slack = 4 // of the runtime and the test's own output
	if after.files > h.files+slack {
		t.Errorf("this process holds %d descriptors, %d before", after.files, h.files)
	}
	if after.tasks > h.tasks+slack {
		t.Errorf("this process has %d goroutines, %d before", after.tasks, h.tasks)
	}
	const growth = 64 << 20 // of what a run may leave to the collector
	if after.heap > h.heap+growth {
		t.Errorf("this process uses %d bytes, %d before", after.heap, h.heap)
	}
	if free := freeMemory(t); free < 1<<30 {
		t.Errorf("the host has only %d bytes of memory left", free)
	}
}

func freeMemory(t *testing.T) int64 {
	t.Helper()
	body, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("no MemAvailable")
	return 0
}

// process is one process of the host.
type process struct {
	table   map[int]*process
	parent  int
	nice    int
	name    string
	command []byte
}

// ours reports whether a process descends from this one.
func (p *process) ours() bool {
	for range 100 {
		switch {
		case p == nil:
			return false
		case p.parent == os.Getpid():
			return true
		}
		p = p.table[p.parent]
	}
	return false
}

// below reports whether a process, or one that it descends from, was started
// with a command that names a sandbox.
func (p *process) below(id string) bool {
	for range 100 {
		switch {
		case p == nil:
			return false
		case bytes.Contains(p.command, []byte(id)):
			return true
		}
		p = p.table[p.parent]
	}
	return false
}

func processTable() map[int]*process {
	table := map[int]*process{}
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range paths {
		stat, err := os.ReadFile(path + "/stat")
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(path))
		end := bytes.LastIndexByte(stat, ')')
		if err != nil || end < 0 {
			continue
		}
		fields := strings.Fields(string(stat[end+1:]))
		p := &process{table: table, name: string(stat[bytes.IndexByte(stat, '(')+1 : end])}
		if len(fields) > 16 {
			p.parent, _ = strconv.Atoi(fields[1])
			p.nice, _ = strconv.Atoi(fields[16])
		}
		p.command, _ = os.ReadFile(path + "/cmdline")
		table[pid] = p
	}
	return table
}

// bold returns processes of ours that run with more than the usual priority.
func bold() []string {
	mine, _ := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	var found []string
	for pid, p := range processTable() {
		if p.ours() && p.nice < 20-mine {
			found = append(found, fmt.Sprintf("%d %s %d", pid, p.name, p.nice))
		}
	}
	return found
}
