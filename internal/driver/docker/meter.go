package docker

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// meter reads what the engine does not tell, or tells too late, from the
// control group of a container. Where the group cannot be seen from here, it
// knows nothing, and the engine's word must do.
type meter struct {
	// kills is the file that counts processes killed for want of memory;
	// peak holds the most memory that was used, cpu the processor time. "" is
	// unknown.
	kills, peak, cpu string
}

// newMeter finds the control group of the process.
func newMeter(proc, groups string, pid int) meter {
	body, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return meter{}
	}
	var m meter
	for line := range strings.Lines(string(body)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 || !filepath.IsAbs(fields[2]) || fields[2] == "/" {
			continue
		}
		switch {
		case fields[1] == "memory":
			dir := filepath.Join(groups, "memory", filepath.Clean(fields[2]))
			m.kills, m.peak = filepath.Join(dir, "memory.oom_control"), filepath.Join(dir, "memory.max_usage_in_bytes")
		case slices.Contains(strings.Split(fields[1], ","), "cpuacct"):
			m.cpu = filepath.Join(groups, fields[1], filepath.Clean(fields[2]), "cpuacct.usage")
		case fields[0] == "0" && m.kills == "":
			dir := filepath.Join(groups, filepath.Clean(fields[2]))
			m = meter{kills: filepath.Join(dir, "memory.events"), peak: filepath.Join(dir, "memory.peak"), cpu: filepath.Join(dir, "cpu.stat")}
		}
	}
	if _, err := os.Stat(m.kills); err != nil {
		return meter{}
	}
	return m
}

// ranOut reports whether a process was killed for want of memory, and whether
// that is known.
func (m meter) ranOut() (ranOut, known bool) {
	if m.kills == "" {
		return false, false
	}
	body, err := os.ReadFile(m.kills)
	if err != nil {
		return false, false
	}
	for line := range bytes.Lines(body) {
		fields := bytes.Fields(line)
		if len(fields) == 2 && string(fields[0]) == "oom_kill" {
			return string(fields[1]) != "0", true
		}
	}
	return false, false
}

// cpuTime is how much processor time was used, or -1.
func (m meter) cpuTime() time.Duration {
	body, err := os.ReadFile(m.cpu)
	if err != nil {
		return -1
	}
	first, _, _ := strings.Cut(string(body), "\n")
	text, micro := strings.CutPrefix(first, "usage_usec ")
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	switch {
	case err != nil:
		return -1
	case micro:
		return time.Duration(n) * time.Microsecond
	}
	return time.Duration(n)
}

// peakMemory is the most memory that was used, or -1.
func (m meter) peakMemory() int64 {
	if m.peak == "" {
		return -1
	}
	body, err := os.ReadFile(m.peak)
	if err != nil {
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(body)), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
