package inside

import (
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/trip"
)

// pipes are for what commands say. To make one takes three trips to the kernel,
// which the next command need not wait for if it comes as the same user: its pipes
// are laid when the one before it was told of. Each is used once, because a
// program can do to a pipe what the next one would notice.
type pipes struct {
	mu    sync.Mutex
	user  user
	spare [][2]int // nobody else has either end
	made  [perCommand][2]int32
}

// perCommand is how many pipes one command takes.
const perCommand = 2

// take returns a pipe that belongs to user. The reading end does not block, also
// because the program can open its own pipe and read what was said to be there.
func (s *pipes) take(user user) (r, w int, err error) {
	s.mu.Lock()
	if n := len(s.spare); n > 0 && s.user == user {
		both := s.spare[n-1]
		s.spare = s.spare[:n-1]
		s.mu.Unlock()
		return both[0], both[1], nil
	}
	s.mu.Unlock()
	return flowing(user)
}

// lay lays pipes for the next command of user. Without them it makes its own.
func (s *pipes) lay(trips *trips, user user) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.user != user {
		for _, both := range s.spare {
			trips.closeAll(both[:])
		}
		s.user, s.spare = user, nil
	}
	var pinned runtime.Pinner
	pinned.Pin(&s.made)
	defer pinned.Unpin()
	var calls []trip.Call
	for i := range s.made[len(s.spare):] {
		s.made[i] = [2]int32{-1, -1}
		both := uintptr(unsafe.Pointer(&s.made[i]))
		calls = append(calls,
			trip.Call{Number: unix.SYS_PIPE2, A: both, B: unix.O_CLOEXEC},
			trip.Call{Number: unix.SYS_FCHOWN | trip.Load, A: both, B: uintptr(user.uid), C: uintptr(user.gid)},
			trip.Call{Number: unix.SYS_FCNTL | trip.Load, A: both, B: unix.F_SETFL, C: unix.O_NONBLOCK})
	}
	_, err := trips.make(calls)
	for _, both := range s.made[:perCommand-len(s.spare)] {
		pipe := [2]int{int(both[0]), int(both[1])}
		if err == nil {
			s.spare = append(s.spare, pipe)
		} else if pipe[0] >= 0 {
			trips.closeAll(pipe[:])
		}
	}
}

// flowing makes a pipe whose reading end does not block.
func flowing(user user) (r, w int, err error) {
	if r, w, err = pipe(user); err != nil {
		return -1, -1, err
	}
	if err := stopBlocking(r); err != nil {
		_ = unix.Close(r)
		_ = unix.Close(w)
		return -1, -1, err
	}
	return r, w, nil
}
