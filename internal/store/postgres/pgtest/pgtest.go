// Package pgtest starts a PostgreSQL server of its own for tests: in a private
// folder, on a private socket, as a user without privileges.
package pgtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// The package that Start needs, for those who must install it.
const packages = "postgresql"

// Guarded is the role whose password the server asks for, once somebody has
// made it. All others are believed.
const Guarded = "guarded"

const believes = "local all " + Guarded + " scram-sha-256\nlocal all all trust\n"

// Server is a running server.
type Server struct {
	dir    string
	daemon *exec.Cmd
	exited chan error
	log    *os.File
	made   atomic.Int64 // schemas
}

// Missing says why no server can be started here; "" is no reason.
func Missing() string {
	if programs() == "" {
		return "initdb and postgres are missing; install " + packages
	}
	return ""
}

// programs finds the folder of the newest release: Debian keeps each in one of
// its own, off the search path.
func programs() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is good
	slices.SortFunc(found, func(a, b string) int { return release(b) - release(a) })
	if path, err := exec.LookPath("initdb"); err == nil {
		found = append(found, path)
	}
	if len(found) == 0 {
		return ""
	}
	return filepath.Dir(found[0])
}

func release(initdb string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(initdb)))) // 0 for a name that is none
	return n
}

// Start starts a server. It does not wait for the disk, which no test can tell.
func Start(ctx context.Context) (*Server, error) {
	return start(ctx, "fsync=off", "full_page_writes=off")
}

// StartDurable starts a server that waits for the disk, as one that is measured
// should.
func StartDurable(ctx context.Context) (*Server, error) { return start(ctx) }

func start(ctx context.Context, settings ...string) (s *Server, err error) {
	dir, err := os.MkdirTemp("/tmp", "aurea-pg-") // short: the path of a socket is bounded
	if err != nil {
		return nil, fmt.Errorf("make the server's folder: %w", err)
	}
	s = &Server{dir: dir, exited: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil { // managers of any user reach the socket
		return s, fmt.Errorf("open the server's folder: %w", err)
	}
	owner, err := unprivileged(dir)
	if err != nil {
		return s, err
	}
	if err := s.initialize(ctx, owner); err != nil {
		return s, err
	}
	if err := s.launch(owner, settings); err != nil {
		return s, err
	}
	return s, s.await(ctx)
}

// unprivileged gives the folder to somebody whom the server accepts: it refuses
// to run as root. nil is whoever runs the test.
func unprivileged(dir string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.Atoi(u.Uid) // numbers on every Unix
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			return nil, fmt.Errorf("give the server's folder away: %w", err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("start a server: this machine has no user without privileges")
}

func (s *Server) initialize(ctx context.Context, owner *syscall.Credential) error {
	cmd := exec.CommandContext(ctx, filepath.Join(programs(), "initdb"), "--pgdata", filepath.Join(s.dir, "data"),
		"--username", "aurea", "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions")
	cmd.Dir, cmd.SysProcAttr = s.dir, &syscall.SysProcAttr{Credential: owner}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make a cluster: %w\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "data", "pg_hba.conf"), []byte(believes), 0o600); err != nil { // it exists, and stays the owner's
		return fmt.Errorf("say whom the server believes: %w", err)
	}
	return nil
}

func (s *Server) launch(owner *syscall.Credential, settings []string) error {
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return fmt.Errorf("make the server's log: %w", err)
	}
	s.log = log
	args := []string{"-D", filepath.Join(s.dir, "data"), "-k", s.dir, "-c", "listen_addresses="}
	for _, setting := range append(settings, "wal_level=minimal", "max_wal_senders=0", "max_connections=400", "shared_buffers=64MB", "log_checkpoints=off") {
		args = append(args, "-c", setting)
	}
	s.daemon = exec.Command(filepath.Join(programs(), "postgres"), args...)
	s.daemon.Stdout, s.daemon.Stderr, s.daemon.Dir = log, log, s.dir
	// It goes when we go, even if we are killed.
	s.daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT, Credential: owner}
	if err := s.daemon.Start(); err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	go func() { s.exited <- s.daemon.Wait() }()
	return nil
}

// await waits until the server answers.
func (s *Server) await(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.url(""))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case err := <-s.exited:
			s.exited <- err
			said, _ := os.ReadFile(s.log.Name())
			return fmt.Errorf("the server ended by itself: %w\n%s", err, bytes.TrimSpace(said))
		case <-ctx.Done():
			return fmt.Errorf("wait for the server: %w, last: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// Socket is the path of the server's socket.
func (s *Server) Socket() string { return filepath.Join(s.dir, ".s.PGSQL.5432") }

func (s *Server) url(schema string) string {
	q := url.Values{"host": {s.dir}, "user": {"aurea"}}
	if schema != "" {
		q.Set("search_path", schema)
	}
	return "postgres:///postgres?" + q.Encode()
}

// Fresh makes an empty database, in fact a schema, and returns its address.
func (s *Server) Fresh(ctx context.Context) (address string, err error) {
	name := fmt.Sprint("test", s.made.Add(1))
	if err := makeSchema(ctx, s.url(""), name); err != nil {
		return "", err
	}
	return s.url(name), nil
}

// Schema makes an empty schema in a database that exists, and returns the
// address of that.
func Schema(ctx context.Context, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", errors.New("make a schema: the address of the database is none")
	}
	name := "aurea_" + strings.ToLower(rand.Text())
	if err := makeSchema(ctx, address, name); err != nil {
		return "", err
	}
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	return u.String(), nil
}

func makeSchema(ctx context.Context, address, name string) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return fmt.Errorf("make a database: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "CREATE SCHEMA "+name); err != nil {
		return fmt.Errorf("make a database: %w", err)
	}
	return nil
}

// Stop ends the server and removes its folder. What is connected is cut off.
func (s *Server) Stop() (err error) {
	if s.daemon != nil && s.daemon.Process != nil {
		if err := s.daemon.Process.Signal(syscall.SIGQUIT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop the server: %w", err)
		}
		<-s.exited
	}
	if s.log != nil {
		_ = s.log.Close()
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove the server's folder: %w", err)
	}
	return nil
}
