package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Group is a control group that holds this process and all that it starts, so
// that what they use together can be read. It implements Meter.
type Group struct {
	// Path is the group's, as /proc/PID/cgroup shows it.
	Path string

	dir  string // of the group
	home string // of the group that this process came from
	v2   bool
}

var _ Meter = (*Group)(nil)

// OpenGroup makes a group and moves this process there. Drivers put their own
// groups below it, or inherit it.
func OpenGroup() (*Group, error) {
	mount, own, v2, err := findCPU()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(own, "aurea-bench-"+strconv.Itoa(os.Getpid()))
	g := &Group{Path: path, dir: filepath.Join(mount, path), home: filepath.Join(mount, own), v2: v2}
	if err := os.MkdirAll(g.leaf(), 0o755); err != nil {
		return nil, fmt.Errorf("make a group to measure with: %w", err)
	}
	if err := enter(g.leaf()); err != nil {
		return nil, errors.Join(err, g.remove())
	}
	return g, nil
}

// leaf is where the process itself is. On version 2 a group with processes can
// have no groups below it that bound anything, and our drivers put theirs
// beside their own.
func (g *Group) leaf() string {
	if g.v2 {
		return filepath.Join(g.dir, "self")
	}
	return g.dir
}

func enter(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("move into the group %s: %w", dir, err)
	}
	return nil
}

// findCPU finds the hierarchy that counts processor time, and our place in it.
func findCPU() (mount, own string, v2 bool, err error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", "", false, fmt.Errorf("look for control groups: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		switch {
		case len(f) < 4:
		case f[2] == "cgroup" && hasWord(f[3], "cpuacct"):
			mount, v2 = f[1], false
		case f[2] == "cgroup2" && mount == "":
			mount, v2 = f[1], true
		}
	}
	if mount == "" {
		return "", "", false, errors.New("look for control groups: none is mounted that counts processor time")
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", "", false, fmt.Errorf("look for our control group: %w", err)
	}
	for line := range strings.Lines(strings.TrimSpace(string(groups))) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && (v2 && f[1] == "" || !v2 && hasWord(f[1], "cpuacct")) {
			own = f[2]
		}
	}
	return mount, own, v2, nil
}

func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// CPU implements Meter.
func (g *Group) CPU() (time.Duration, error) {
	file, unit := "cpuacct.usage", time.Nanosecond
	if g.v2 {
		file, unit = "cpu.stat", time.Microsecond
	}
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0, fmt.Errorf("read the group's processor time: %w", err)
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	n, err := strconv.ParseInt(string(bytes.TrimPrefix(first, []byte("usage_usec "))), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the group's processor time: %w", err)
	}
	return time.Duration(n) * unit, nil
}

// Memory implements Meter.
func (g *Group) Memory() (map[int]int64, error) {
	all := map[int]int64{}
	err := filepath.WalkDir(g.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return err
		}
		pids, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for pid := range strings.FieldsSeq(string(pids)) {
			n, err := strconv.Atoi(pid)
			if err != nil {
				return err
			}
			if bytes, err := proportional(n); err == nil { // else it has just ended
				all[n] = bytes
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the group's memory: %w", err)
	}
	return all, nil
}

// proportional is the memory of a process, where a page that several share
// counts for each with its part.
func proportional(pid int) (int64, error) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	const unit = 1024
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "Pss:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n * unit, err
		}
	}
	return 0, errors.New("no Pss")
}

// Close moves this process back, and removes the group and what others made
// below it, here and under the same path in other hierarchies.
func (g *Group) Close() error {
	return errors.Join(enter(g.home), g.remove())
}

func (g *Group) remove() error {
	places, err := filepath.Glob("/sys/fs/cgroup/*" + g.Path)
	if err != nil {
		return err
	}
	for _, place := range append(places, g.dir) {
		if e := removeGroups(place); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("remove the group: %w", e))
		}
	}
	return err
}

// removeGroups removes a group with those below it, which must be empty.
func removeGroups(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroups(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(dir)
}
