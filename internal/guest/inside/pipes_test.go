package inside

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPipesAreLaidForTheNextCommand(t *testing.T) {
	t.Parallel()
	me := user{uint32(os.Getuid()), uint32(os.Getgid())}
	s := &pipes{}
	s.lay(&trips{}, me)
	laid := slices.Clone(s.spare)
	s.lay(&trips{}, me)
	if len(laid) != perCommand || !slices.Equal(s.spare, laid) {
		t.Fatalf("laid %v, then %v", laid, s.spare)
	}
	for range perCommand {
		r, w, err := s.take(me)
		if err != nil || !slices.Contains(laid, [2]int{r, w}) {
			t.Errorf("took %d and %d of %v: %v", r, w, laid, err)
		}
		if flags, err := unix.FcntlInt(uintptr(w), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
			t.Errorf("a program writes to one that does not block: %#x, %v", flags, err)
		}
		if n, err := unix.Read(r, make([]byte, 1)); err != unix.EAGAIN {
			t.Errorf("the guest reads one that blocks: %d, %v", n, err)
		}
		closeBoth(t, r, w)
	}
	r, w, err := s.take(me)
	if err != nil || len(s.spare) != 0 {
		t.Errorf("with none left took %d and %d: %v", r, w, err)
	}
	closeBoth(t, r, w)
}

func TestPipesOfAnotherUserAreNotTaken(t *testing.T) {
	needsRoot(t)
	s := &pipes{}
	one, other := user{1001, 1002}, user{1003, 1004}
	s.lay(&trips{}, one)
	laid := slices.Clone(s.spare)
	r, w, err := s.take(other)
	if err != nil || slices.Contains(laid, [2]int{r, w}) || len(s.spare) != perCommand {
		t.Errorf("took %d and %d of %v: %v", r, w, laid, err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(w, &stat); err != nil || stat.Uid != other.uid || stat.Gid != other.gid {
		t.Errorf("it belongs to %d:%d: %v", stat.Uid, stat.Gid, err)
	}
	closeBoth(t, r, w)
	s.lay(&trips{}, other)
	for _, both := range s.spare {
		if err := unix.Fstat(both[1], &stat); err != nil || stat.Uid != other.uid {
			t.Errorf("what was laid belongs to %d: %v", stat.Uid, err)
		}
		closeBoth(t, both[0], both[1])
	}
}

func closeBoth(t *testing.T, r, w int) {
	t.Helper()
	for _, fd := range []int{r, w} {
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	}
}
