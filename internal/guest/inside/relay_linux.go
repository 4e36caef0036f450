package inside

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// dialTime bounds how long a server may leave a connection unanswered: one that
// listens is answered for by the kernel.
const dialTime = 5 * time.Second

// dial implements system: it connects to a port of the sandbox's own loopback.
func (l *linux) dial(port uint16) (*os.File, error) {
	four := &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}}
	f, err := connect(unix.AF_INET, four)
	if err == nil || !errors.Is(err, unix.ECONNREFUSED) {
		return f, dialError(port, err)
	}
	six := &unix.SockaddrInet6{Port: int(port), Addr: [16]byte{15: 1}}
	f, err = connect(unix.AF_INET6, six)
	return f, dialError(port, err)
}

// dialError says that nobody listens, where that is so. A sandbox may have no
// loopback of the sixth version, nor of the fourth.
func dialError(port uint16, err error) error {
	for _, closed := range []error{unix.ECONNREFUSED, unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT, unix.ENETUNREACH, unix.EHOSTUNREACH, os.ErrDeadlineExceeded} {
		if errors.Is(err, closed) {
			return &refusal{status: wire.StatusPortClosed, reason: fmt.Sprintf("nobody listens at port %d in the sandbox", port)}
		}
	}
	return err
}

// connect makes a connection as a file, which package os can wait for: package
// net would make the guest half as large again.
func connect(family int, to unix.Sockaddr) (*os.File, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	// Small pieces are sent as they come.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	err = unix.Connect(fd, to)
	f := os.NewFile(uintptr(fd), "connection")
	if errors.Is(err, unix.EINPROGRESS) {
		err = connected(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// connected waits until a connection stands.
func connected(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if err := f.SetDeadline(time.Now().Add(dialTime)); err != nil {
		return err
	}
	failed := 0
	var sockErr error
	err = conn.Write(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, err := unix.Poll(fds, 0); err == nil && n == 0 {
			return false
		}
		failed, sockErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		return true
	})
	switch {
	case err != nil:
		return err
	case sockErr != nil:
		return sockErr
	case failed != 0:
		return syscall.Errno(failed)
	}
	return f.SetDeadline(time.Time{})
}

// closeWrite ends what is sent over a connection.
func closeWrite(f *os.File) {
	if conn, err := f.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
	}
}
