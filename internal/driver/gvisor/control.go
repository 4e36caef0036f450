package gvisor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
)

// What a sentry can be asked, by gVisor's names.
const (
	controlPause      = "containerManager.Pause"
	controlResume     = "containerManager.Resume"
	controlCheckpoint = "containerManager.Checkpoint"
)

// controlSocket is where a sentry listens, in the sandbox's folder.
const controlSocket = "run/runsc-" + sentryID + ".sock"

// control asks the sentry of the sandbox in dir for something, and hands it
// files. It speaks gVisor's protocol itself: a JSON object each way. gVisor's
// own client knows no deadline, and leaks its descriptors to children. What the
// sentry answers is not believed further than that it has answered.
func control(ctx context.Context, dir, method string, arg any, files ...*os.File) error {
	conn, err := dialControl(dir)
	if err != nil {
		return fmt.Errorf("reach the sentry: %w", err)
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err = sendControl(conn, method, arg, files)
	if err == nil {
		err = receiveControl(conn)
	}
	if err != nil && ctx.Err() != nil {
		return fault.New(fault.Unavailable, "the sentry does not answer: %w", context.Cause(ctx))
	}
	return err
}

// dialControl connects by way of the folder, because a socket's path may be too
// long for an address.
func dialControl(dir string) (*net.UnixConn, error) {
	path := filepath.Join(dir, controlSocket)
	folder, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }()
	name := fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(path))
	return net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: name})
}

func sendControl(conn *net.UnixConn, method string, arg any, files []*os.File) error {
	body, err := json.Marshal(struct {
		Method string `json:"method"`
		Arg    any    `json:"arg"`
	}{method, arg})
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	n, _, err := conn.WriteMsgUnix(body, rights, nil)
	if err == nil && n < len(body) {
		_, err = conn.Write(body[n:])
	}
	if err != nil {
		return fmt.Errorf("ask the sentry: %w", err)
	}
	return nil
}

func receiveControl(conn io.Reader) error {
	const longest = 64 << 10
	var answer struct {
		Success bool   `json:"success"`
		Err     string `json:"err"`
	}
	if err := json.NewDecoder(io.LimitReader(conn, longest)).Decode(&answer); err != nil {
		return fmt.Errorf("hear the sentry: %w", err)
	}
	if !answer.Success {
		const enough = 300
		return &refusedError{fmt.Sprintf("%.*q", enough, answer.Err)}
	}
	return nil
}

// refusedError is an answer of a sentry that has not done what it was asked.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return "the sentry refuses: " + e.reason }
