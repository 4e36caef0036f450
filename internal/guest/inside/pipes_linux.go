package inside

import (
	"sync"

	"golang.org/x/sys/unix"
)

// pipes are for what commands say. To make one takes three trips to the kernel,
// which the next command need not wait for if it comes as the same user: its pipes
// are laid when the one before it was told of. Each is used once, because a
// program can do to a pipe what the next one would notice.
type pipes struct {
	mu    sync.Mutex
	user  user
	spare [][2]int // nobody else has either end
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
func (s *pipes) lay(user user) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.user != user {
		for _, both := range s.spare {
			_ = unix.Close(both[0])
			_ = unix.Close(both[1])
		}
		s.user, s.spare = user, nil
	}
	for len(s.spare) < perCommand {
		r, w, err := flowing(user)
		if err != nil {
			return
		}
		s.spare = append(s.spare, [2]int{r, w})
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
