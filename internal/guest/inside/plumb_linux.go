package inside

import (
	"fmt"
	"os"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// ends are a process's own ends of its pipes or its terminal, in the order of
// its descriptors. They are bare descriptors: the poller, which every os.File
// asks for a place, is for the guest's ends, and a system call costs a trip to
// the kernel outside.
type ends []uintptr

// but are those that are not the guest's own, each once.
func (l ends) but(own int) (others []int) {
	for i, fd := range l {
		if i > 0 && fd == l[i-1] || int(fd) == own { // a terminal's three are one
			continue
		}
		others = append(others, int(fd))
	}
	return others
}

// plumb makes the process's pipes or terminal. It returns the process's own
// ends, also with an error.
func (l *linux) plumb(p *process, open wire.Open, user user) (theirs ends, err error) {
	if open.TTY {
		return p.plumbTTY(open, user)
	}
	in := uintptr(l.null)
	if open.Stdin {
		if in, err = p.plumbInput(user); err != nil {
			return nil, err
		}
	}
	theirs = append(theirs, in)
	for i := range p.out {
		r, w, err := l.pipes.take(user)
		if err != nil {
			return theirs, err
		}
		theirs = append(theirs, uintptr(w))
		if p.lane != nil {
			p.lane.out[i] = r
		} else {
			p.out[i] = os.NewFile(uintptr(r), "output")
		}
	}
	return theirs, nil
}

func (p *process) plumbInput(user user) (uintptr, error) {
	r, w, err := pipe(user)
	if err != nil {
		return 0, err
	}
	if p.in, err = file(w, "input"); err != nil {
		_ = unix.Close(r)
		return 0, err
	}
	return uintptr(r), nil
}

func (p *process) plumbTTY(open wire.Open, user user) (ends, error) {
	blocking, slave, err := pty.Open()
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	defer func() { _ = slave.Close() }()
	master, err := again(blocking)
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	p.tty, p.in, p.out[0] = master, master, master
	fd, err := unix.FcntlInt(slave.Fd(), unix.F_DUPFD_CLOEXEC, 0) // Fd also makes it block, as programs expect
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	theirs := ends{uintptr(fd), uintptr(fd), uintptr(fd)}
	if err := slave.Chown(int(user.uid), int(user.gid)); err != nil {
		return theirs, fmt.Errorf("hand over the terminal: %w", err)
	}
	if open.Cols > 0 && open.Rows > 0 {
		if err := p.resize(open.Cols, open.Rows); err != nil {
			return theirs, err
		}
	}
	if !open.Stdin {
		// An empty input, as far as a terminal knows one.
		if _, err := master.Write([]byte{endOfInput}); err != nil {
			return theirs, fmt.Errorf("close the terminal's input: %w", err)
		}
	}
	return theirs, nil
}

// again makes a file that blocks one that the poller waits for: else whoever reads
// it could not be woken.
func again(f *os.File) (*os.File, error) {
	defer func() { _ = f.Close() }()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return file(fd, f.Name())
}

// winsize tells a terminal its size. It leaves the file one that does not block,
// which asking it for its descriptor would not.
func winsize(f *os.File, cols, rows uint16) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	if err := conn.Control(func(fd uintptr) {
		set = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: cols, Row: rows})
	}); err != nil {
		return err
	}
	return set
}

// endOfInput is the character that ends a terminal's input.
const endOfInput = 4

// pipe returns a pipe that belongs to user, because a program may open
// /dev/stdout anew, which only its owner can. Both ends block, as programs
// expect.
func pipe(user user) (r, w int, err error) {
	var both [2]int
	if err := unix.Pipe2(both[:], unix.O_CLOEXEC); err != nil {
		return 0, 0, fmt.Errorf("make a pipe: %w", err)
	}
	if err := unix.Fchown(both[0], int(user.uid), int(user.gid)); err != nil {
		_ = unix.Close(both[0])
		_ = unix.Close(both[1])
		return 0, 0, fmt.Errorf("hand over a pipe: %w", err)
	}
	return both[0], both[1], nil
}

// file makes the guest's end of a pipe one that the poller waits for.
func file(fd int, name string) (*os.File, error) {
	if err := stopBlocking(fd); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// stopBlocking makes an end of a new pipe one that does not block. It has no other
// flags, so nobody need ask for them.
func stopBlocking(fd int) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		return fmt.Errorf("make a pipe not block: %w", err)
	}
	return nil
}

// openNull opens what is empty for every command. Its descriptor, and so those of
// all pipes, is none that a command has itself: what is below is taken.
func openNull() (int, error) {
	for {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, fmt.Errorf("open %s: %w", os.DevNull, err)
		}
		if fd >= firstFree {
			return fd, nil
		}
	}
}

// firstFree is the first descriptor that no command has at its start.
const firstFree = 3

// closeFiles closes what is there.
func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

func (p *process) close() {
	closeFiles([]*os.File{p.in, p.out[0], p.out[1]})
	if p.lane != nil {
		for _, fd := range p.lane.drop() {
			_ = unix.Close(fd)
		}
	}
}
