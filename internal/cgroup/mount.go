package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// mount is one hierarchy as the kernel lists it for this process.
type mount struct {
	key         string
	version     int
	dir         string // where it is mounted
	own         string // the group of this process, relative to dir; "." is dir
	readOnly    bool
	controllers []Controller
}

// findMounts reads where this process's groups are.
func findMounts(root string) ([]mount, error) {
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a kernel without any
	}
	if err != nil {
		return nil, fmt.Errorf("read the groups of this process: %w", err)
	}
	table, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("read the mounts of this process: %w", err)
	}
	mounts := parseMounts(string(table), parseOwn(string(groups)))
	for i := range mounts {
		m := &mounts[i]
		m.dir = filepath.Join(root, m.dir)
		if m.version == 2 {
			// What our groups can be given is what the group around them has.
			around := m.own
			if around != "." {
				around = path.Dir(around)
			}
			list, err := os.ReadFile(filepath.Join(m.dir, around, "cgroup.controllers"))
			if err != nil {
				return nil, fmt.Errorf("read the controllers: %w", err)
			}
			for _, name := range strings.Fields(string(list)) {
				m.controllers = append(m.controllers, Controller(name))
			}
		}
	}
	return mounts, nil
}

// parseOwn reads /proc/self/cgroup: the group of this process in each
// hierarchy, by the hierarchy's key.
func parseOwn(text string) map[string]string {
	own := map[string]string{}
	for line := range strings.Lines(text) {
		_, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		key, group, ok2 := strings.Cut(rest, ":")
		if ok && ok2 {
			own[key] = group
		}
	}
	return own
}

// parseMounts reads /proc/self/mountinfo. Where a hierarchy is mounted more
// than once, the first counts.
func parseMounts(text string, own map[string]string) []mount {
	var mounts []mount
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		before, after := strings.Fields(left), strings.Fields(right)
		if !ok || len(before) < 6 || len(after) < 3 {
			continue
		}
		m := mount{dir: unescape(before[4]), readOnly: slices.Contains(strings.Split(before[5], ","), "ro")}
		switch after[0] {
		case "cgroup2":
			m.version = 2
		case "cgroup":
			m.version = 1
			for name := range strings.SplitSeq(after[2], ",") {
				m.controllers = append(m.controllers, Controller(name))
			}
			m.key = keyOf(m.controllers, own)
		default:
			continue
		}
		group, ok := own[m.key]
		seen := slices.ContainsFunc(mounts, func(o mount) bool { return o.version == m.version && o.key == m.key })
		if !ok || seen {
			continue
		}
		m.own = below(unescape(before[3]), group)
		mounts = append(mounts, m)
	}
	return mounts
}

// keyOf finds the key of the hierarchy whose controllers are among a mount's
// options.
func keyOf(options []Controller, own map[string]string) string {
	for key := range own {
		if key == "" {
			continue
		}
		all := true
		for name := range strings.SplitSeq(key, ",") {
			all = all && slices.Contains(options, Controller(name))
		}
		if all {
			return key
		}
	}
	return "\x00" // the key of none
}

// below is where a group is in a mount that shows the tree from root on. A
// group that the mount does not show is taken for the mount's own root.
func below(root, group string) string {
	if rest, ok := strings.CutPrefix(group, root); ok && (root == "/" || rest == "" || rest[0] == '/') {
		rel := path.Clean("./" + rest)
		if rel != ".." && !strings.HasPrefix(rel, "../") {
			return rel
		}
	}
	return "."
}

// unescape undoes the kernel's way of writing blanks in paths.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
