// Package s3test starts an S3 server of its own for tests: Versity's gateway
// over a private folder, on loopback.
package s3test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The credentials of the server's only user.
const (
	AccessKey = "aurea"
	SecretKey = "aurea-secret"
)

// Server is a running server.
type Server struct {
	// Endpoint is its address, as a URL.
	Endpoint string

	dir    string
	daemon *exec.Cmd
	said   said
	exited chan struct{}
	made   atomic.Int64 // buckets
}

// said keeps what the server says.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// program is where the Makefile puts the server: below the folder of go.mod,
// in which, or somewhere below which, tests run.
func program() string {
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if _, no := os.Stat(filepath.Join(dir, "go.mod")); no == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return filepath.Join(dir, "bin", "versitygw")
}

// Missing says why no server can be started here; "" is no reason.
func Missing() string {
	if _, err := os.Stat(program()); err != nil {
		return "bin/versitygw is not there; run `make bin/versitygw`"
	}
	return ""
}

// Start starts a server. certificate and key name files for TLS; "" is without.
func Start(ctx context.Context, certificate, key string) (*Server, error) {
	dir, err := os.MkdirTemp("", "aurea-s3-")
	if err != nil {
		return nil, fmt.Errorf("make the server's folder: %w", err)
	}
	for try := 0; ; try++ { // somebody else may take the port that was free
		s := &Server{dir: dir, exited: make(chan struct{})}
		err := s.start(ctx, certificate, key)
		if err == nil {
			return s, nil
		}
		s.kill()
		if try == 5 || ctx.Err() != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
}

func (s *Server) start(ctx context.Context, certificate, key string) error {
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	root, side := filepath.Join(s.dir, "root"), filepath.Join(s.dir, "side")
	for _, dir := range []string{root, side} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make the server's folder: %w", err)
		}
	}
	s.Endpoint = "http://" + address
	args := []string{"--port", address, "--access", AccessKey, "--secret", SecretKey, "--quiet"}
	if certificate != "" {
		s.Endpoint = "https://" + address
		args = append(args, "--cert", certificate, "--key", key)
	}
	s.daemon = exec.Command(program(), append(args, "posix", "--sidecar", side, root)...)
	s.daemon.Dir, s.daemon.Stdout, s.daemon.Stderr, s.daemon.Env = s.dir, &s.said, &s.said, []string{}
	s.daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it goes when we go
	if err := s.daemon.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	go func() {
		_ = s.daemon.Wait()
		close(s.exited)
	}()
	return s.await(ctx, address)
}

func freeAddress(ctx context.Context) (string, error) {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("look for a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// await waits until the server takes connections.
func (s *Server) await(ctx context.Context, address string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-s.exited:
			return fmt.Errorf("the server ended by itself: %s", s.said.String())
		case <-ctx.Done():
			return fmt.Errorf("wait for the server: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// Bucket makes an empty bucket and returns its name. The server takes a folder
// for one.
func (s *Server) Bucket() (string, error) {
	name := fmt.Sprint("bucket-", s.made.Add(1))
	if err := os.Mkdir(s.Folder(name), 0o700); err != nil {
		return "", fmt.Errorf("make a bucket: %w", err)
	}
	return name, nil
}

// Folder is where the objects of a bucket lie, as files.
func (s *Server) Folder(bucket string) string { return filepath.Join(s.dir, "root", bucket) }

// Said is what the server said.
func (s *Server) Said() string { return s.said.String() }

func (s *Server) kill() {
	if s.daemon != nil && s.daemon.Process != nil {
		_ = s.daemon.Process.Kill() // it may have ended
		<-s.exited
	}
}

// Stop ends the server and removes its folder.
func (s *Server) Stop() error {
	s.kill()
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove the server's folder: %w", err)
	}
	return nil
}
