package inside

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/trip"
)

// Outside of our sandboxes there is no such call, and what was to be done together
// is done one by one.
func TestCallsAreMadeOneByOneWithoutATrip(t *testing.T) {
	t.Parallel()
	const nobodys = 1 << 20 // no descriptor has this number
	made := &struct{ pipe [2]int32 }{}
	var pinned runtime.Pinner
	pinned.Pin(made)
	defer pinned.Unpin()
	at := uintptr(unsafe.Pointer(made))
	s := &trips{}
	flags, err := s.make([]trip.Call{
		{Number: unix.SYS_CLOSE | trip.Pass, A: nobodys},
		{Number: unix.SYS_PIPE2, A: at, B: unix.O_CLOEXEC},
		{Number: unix.SYS_FCNTL | trip.Load, A: at, B: unix.F_SETFL, C: unix.O_NONBLOCK},
		{Number: unix.SYS_FCNTL | trip.Load, A: at, B: unix.F_GETFL},
	})
	if err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("the last call returned %#x, %v", flags, err)
	}
	if !s.none.Load() {
		t.Error("a trip is said to be there")
	}
	s.closeAll([]int{int(made.pipe[0]), int(made.pipe[1])})
	_, err = s.make([]trip.Call{{Number: unix.SYS_CLOSE, A: nobodys}, {Number: unix.SYS_GETPID}})
	if !errors.Is(err, unix.EBADF) {
		t.Errorf("what is not open was closed: %v", err)
	}
}

func TestLookSeesWhatIsThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("four"), 0o640); err != nil {
		t.Fatal(err)
	}
	names := []string{dir, file, filepath.Join(dir, "none"), "a\x00b", file + "/below"}
	for len(names) < 3*trip.Most { // more than one trip can look at
		names = append(names, "/no/such/file")
	}
	names = append(names, file)
	s := &trips{}
	for range 2 { // the second time it is known that there are no trips
		seen := s.look(names)
		if len(seen) != len(names) || seen[0].Mode&unix.S_IFMT != unix.S_IFDIR {
			t.Fatalf("saw %d of %d, a folder as %o", len(seen), len(names), seen[0].Mode)
		}
		for i, x := range seen {
			if want := names[i] == file; (x.Size == 4 && x.Mode == unix.S_IFREG|0o640) != want || i > 1 && !want && x.Mode != 0 {
				t.Errorf("%q has %d bytes and the mode %o", names[i], x.Size, x.Mode)
			}
		}
	}
}

func TestChooseIsWhatAShellWouldFind(t *testing.T) {
	t.Parallel()
	const plain, program, folder = unix.S_IFREG | 0o644, unix.S_IFREG | 0o755, unix.S_IFDIR | 0o755
	names := candidates("x", []string{"PATH=/old", "PATH=/a:b:/c:"})
	if len(names) != 2 || names[0] != "/a/x" || names[1] != "/c/x" {
		t.Fatalf("candidates %q", names)
	}
	for _, tc := range []struct {
		modes [2]uint32
		path  string
		code  int
	}{
		{[2]uint32{program, program}, "/a/x", 0},
		{[2]uint32{0, program}, "/c/x", 0},
		{[2]uint32{folder, program}, "/c/x", 0},
		{[2]uint32{plain, program}, "/c/x", 0},
		{[2]uint32{plain, 0}, "", 126},
		{[2]uint32{folder, 0}, "", 127},
		{[2]uint32{}, "", 127},
	} {
		path, code := choose("x", names, []unix.Stat_t{{Mode: tc.modes[0]}, {Mode: tc.modes[1]}})
		if path != tc.path || code != tc.code {
			t.Errorf("with %o chose %q, %d, want %q, %d", tc.modes, path, code, tc.path, tc.code)
		}
	}
	if path, code := choose("./x", candidates("./x", nil), nil); path != "./x" || code != 0 {
		t.Errorf("one with its folder is %q, %d", path, code)
	}
	if _, code := choose("", candidates("", []string{"PATH=/a"}), nil); code != 127 {
		t.Errorf("none ends with %d", code)
	}
}
