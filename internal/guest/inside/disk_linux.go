package inside

import (
	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// writable are the places where code can write files that last as long as its
// sandbox. What lies below /dev/shm is memory.
func writable() []string { return []string{"/", "/workspace", "/tmp"} }

// disk says how many bytes were written. The file systems count them anyway:
// going through a tree would take as long as the tree is large.
func (t task) disk() error {
	d, err := writtenTo(writable())
	if err != nil {
		return err
	}
	_, err = t.out[0].Write(d.Append(nil))
	return err
}

// writtenTo adds up what is used of the file systems of the paths, each once. One
// that nobody can write to holds what was there before; it may be the host's.
func writtenTo(paths []string) (wire.Disk, error) {
	var d wire.Disk
	seen := map[uint64]bool{}
	for _, path := range paths {
		var where unix.Stat_t
		var of unix.Statfs_t
		if err := unix.Stat(path, &where); err != nil {
			return d, err
		}
		if err := unix.Statfs(path, &of); err != nil {
			return d, err
		}
		if seen[where.Dev] || of.Flags&unix.ST_RDONLY != 0 || of.Bsize <= 0 || of.Blocks < of.Bfree {
			continue
		}
		seen[where.Dev] = true
		d.Bytes += int64(of.Blocks-of.Bfree) * of.Bsize
	}
	return d, nil
}
