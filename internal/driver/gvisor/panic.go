package gvisor

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// keptPanics is how many last words of sentries are kept for diagnosis.
const keptPanics = 20

// panicNote says what a sentry that died left as its last words.
func panicNote(dir string) string {
	f, err := os.Open(filepath.Join(dir, "panic.log"))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	const enough = 300
	words, _ := io.ReadAll(io.LimitReader(f, enough))
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf(" (its last words: %q)", words)
}

// panicked reports whether the log holds a death. A sentry also writes its
// warnings there, of which code in the sandbox can cause any number.
func panicked(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	words, _ := io.ReadAll(io.LimitReader(f, longestPanic))
	return slices.ContainsFunc([]string{"panic: ", "fatal error: ", "SIGSEGV", "SIGBUS"}, func(mark string) bool {
		return bytes.Contains(words, []byte(mark))
	})
}

// longestPanic is how much is read and kept of a log.
const longestPanic = 1 << 20

// keepPanic keeps the last words of a sentry beyond its sandbox, in panic/, and
// only the newest.
func (d *Driver) keepPanic(id string) {
	from := filepath.Join(d.dir(id), "panic.log")
	if !panicked(from) {
		return
	}
	if info, err := os.Stat(from); err == nil && info.Size() > longestPanic {
		_ = os.Truncate(from, longestPanic)
	}
	folder := filepath.Join(d.config.StateDir, "panic")
	if err := os.Rename(from, filepath.Join(folder, id+".log")); err != nil {
		d.config.Logger.Warn("the last words of a sentry are lost", "sandbox", id, "error", err)
		return
	}
	d.config.Logger.Error("a sentry has panicked", "sandbox", id, "log", filepath.Join(folder, id+".log"))
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) <= keptPanics {
		return
	}
	age := func(e os.DirEntry) int64 {
		info, err := e.Info()
		if err != nil {
			return 0
		}
		return info.ModTime().UnixNano()
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(age(a), age(b)) })
	for _, e := range entries[:len(entries)-keptPanics] {
		_ = os.Remove(filepath.Join(folder, e.Name()))
	}
}
