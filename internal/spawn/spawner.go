package spawn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// spawner is one running spawner process. One goroutine at a time uses it.
type spawner struct {
	cmd  *exec.Cmd
	conn net.Conn
	seq  uint64
	// ended is closed when the process has ended and was waited for.
	ended chan struct{}
}

func startSpawner(config Config) (*spawner, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make socket pair: %w", err)
	}
	ours := os.NewFile(uintptr(fds[0]), "spawner")
	theirs := os.NewFile(uintptr(fds[1]), "worker")
	defer func() { _ = theirs.Close() }()
	conn, err := net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		return nil, fmt.Errorf("use socket pair: %w", err)
	}

	cmd := exec.Command(config.Sentry, "spawn")
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{theirs}
	// A session of its own, so that a key pressed at our terminal is not
	// pressed at its sandboxes.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("start spawner: %w", err)
	}
	s := &spawner{cmd: cmd, conn: conn, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		_ = cmd.Wait() // how it ended says nothing that its silence does not
	}()
	config.Logger.Debug("spawner started", "pid", cmd.Process.Pid)
	return s, nil
}

func (s *spawner) pid() int { return s.cmd.Process.Pid }

func (s *spawner) alive() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// call sends a request and waits for its answer until ctx ends. After an error
// the spawner must be stopped: what it does is not known.
func (s *spawner) call(ctx context.Context, request Request) (Response, error) {
	s.seq++
	request.Seq = s.seq
	if err := s.conn.SetDeadline(time.Time{}); err != nil {
		return Response{}, fmt.Errorf("prepare the spawner's socket: %w", err)
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = s.conn.SetDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-interrupted // else it could hit the next call
		}
	}()

	var response Response
	err := WriteMessage(s.conn, request)
	if err == nil {
		err = ReadMessage(s.conn, &response)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return Response{}, context.Cause(ctx)
	case err != nil:
		return Response{}, fmt.Errorf("the spawner went away: %w", err)
	case response.Seq != request.Seq:
		return Response{}, errors.New("the spawner answered another request")
	}
	return response, nil
}

// stop ends the process, at once, and waits for its end.
func (s *spawner) stop() {
	_ = s.conn.Close()
	_ = s.cmd.Process.Kill() // fails only if it has ended
	<-s.ended
}
