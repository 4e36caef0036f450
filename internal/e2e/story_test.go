package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestStories plays testdata/*.txtar. Beside the usual commands they have
//
//	up [flags]         starts `aurea up` on free ports over $DATA and sets
//	                   AUREA_SERVER, BRIDGE and UP (its process id)
//	serve ROLE [flags] starts one role; a manager sets AUREA_SERVER, a bridge
//	                   BRIDGE
//	down ROLE          stops it, which must end well and leave no process
//	murder ROLE        kills up, or one of its children, with SIGKILL
//	code N PROGRAM …   runs a program that must end with exit code N
//	capture NAME EXPR  sets a variable to the first group that matches stdout
//	processes N EXPR   demands that so many processes of $DATA match, soon
//	exec http METHOD URL [-H 'Name: value'] [-d BODY|@FILE]
//	                   prints the status, then the body
//	exec types         prints the types of events, from lines of JSON
//
// and the conditions [gvisor], which holds where real sandboxes can be made, and
// [postgres], which holds when the stories are played on PostgreSQL.
func TestStories(t *testing.T) {
	t.Parallel()
	if !hasGVisor() {
		t.Log("left out: stories in real sandboxes, which need root")
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		Deadline:            time.Now().Add(6 * patience), // a program that should end and does not; stories wait for their turn before
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			s := &stage{data: dataFolder(e.T().(testing.TB)), cast: map[string]*process{}}
			e.Values[stageKey{}] = s
			e.Setenv("DATA", filepath.Join(s.data, "data"))
			e.Setenv("IMAGES", images)
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("PATH", binaries+string(filepath.ListSeparator)+e.Getenv("PATH"))
			e.Defer(func() { s.clear(e.T()) })
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "gvisor" {
				return hasGVisor(), nil
			}
			if cond == "postgres" {
				return onPostgres(), nil
			}
			return false, fmt.Errorf("no such condition: %s", cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"up": cmdUp, "serve": cmdServe, "down": cmdDown, "murder": cmdMurder, "code": cmdCode, "capture": cmdCapture, "processes": cmdProcesses,
		},
	})
}

// stage is what one story has running.
type stage struct {
	data    string
	cast    map[string]*process
	sockets []*os.File
}

type stageKey struct{}

func stageOf(ts *testscript.TestScript) *stage { return ts.Value(stageKey{}).(*stage) }

// clear ends what a story left, whether it went well or not.
func (s *stage) clear(t testscript.T) {
	for name, p := range s.cast {
		if _, err := p.stop(); err != nil {
			t.Log(err)
		}
		if tb := t.(testing.TB); tb.Failed() {
			t.Log(name, "said:\n"+p.said())
		}
	}
	for _, f := range s.sockets {
		_ = f.Close()
	}
}

// start starts a role with the story's own environment.
func (s *stage) start(ts *testscript.TestScript, name string, sock *os.File, args []string) *process {
	if s.cast[name] != nil {
		ts.Fatalf("%s is running already", name)
	}
	var env []string
	for _, v := range []string{"AUREA_DATA", "HOST", "AUREA_KEY_FILE", "AUREA_LEASE_TERM", "AUREA_ROLES", "MANAGER_URL", "AUREA_DRIVER", "AUREA_POOL", "DATABASE_URL"} {
		if value := ts.Getenv(v); value != "" {
			env = append(env, v+"="+value)
		}
	}
	if sock != nil {
		env = append(env, "AUREA_LISTEN_FD=3")
	}
	p, err := start(env, sock, args...)
	ts.Check(err)
	s.cast[name] = p
	return p
}

func cmdUp(ts *testscript.TestScript, neg bool, args []string) {
	p := stageOf(ts).start(ts, "up", nil, append([]string{"up", "--data", ts.Getenv("DATA"), "--port", "0", "--bridge-port", "0", "--drain-timeout", "3s"}, args...))
	ts.Check(p.expect("Ctrl-C stops everything in order."))
	api, err := p.after("API     ")
	ts.Check(err)
	bridge, err := p.after("bridge  http")
	ts.Check(err)
	ts.Setenv("AUREA_SERVER", api)
	ts.Setenv("BRIDGE", "http"+bridge)
	ts.Setenv("UP", strconv.Itoa(p.pid()))
}

func cmdServe(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: serve ROLE [flags]")
	}
	role, s := args[0], stageOf(ts)
	if role == "worker" {
		ts.Check(s.start(ts, role, nil, args).expect("worker is ready"))
		return
	}
	// The socket is ours, on loopback, whatever address the role believes in.
	sock, url, err := socket()
	ts.Check(err)
	s.sockets = append(s.sockets, sock)
	ts.Check(s.start(ts, role, sock, args).expect(role + " serves"))
	if role == "bridge" {
		ts.Setenv("BRIDGE", url)
		return
	}
	ts.Setenv("AUREA_SERVER", url)
	ts.Setenv("MANAGER_URL", url)
}

func cmdDown(ts *testscript.TestScript, neg bool, args []string) {
	s := stageOf(ts)
	for _, name := range args {
		p := s.cast[name]
		if p == nil {
			ts.Fatalf("%s is not running", name)
		}
		delete(s.cast, name)
		code, err := p.stop()
		ts.Check(err)
		if code != 0 {
			ts.Fatalf("%s ends with %d:\n%s", name, code, p.said())
		}
	}
	if len(s.cast) == 0 {
		awaitProcesses(ts, s.data, regexp.MustCompile(""), 0)
	}
}

func cmdMurder(ts *testscript.TestScript, neg bool, args []string) {
	s := stageOf(ts)
	if neg || len(args) != 1 || s.cast["up"] == nil {
		ts.Fatalf("usage: murder ROLE, while up is running")
	}
	up := s.cast["up"]
	if args[0] == "up" {
		delete(s.cast, "up")
		ts.Check(up.kill())
		return
	}
	pid := children(up.pid())[args[0]]
	if pid == 0 {
		ts.Fatalf("no %s is running", args[0])
	}
	ts.Check(syscall.Kill(pid, syscall.SIGKILL))
}

func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM …")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func cmdCapture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: capture NAME EXPR")
	}
	expr, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	m := expr.FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) < 2 {
		ts.Fatalf("%s does not match stdout", args[1])
	}
	ts.Setenv(args[0], m[1])
}

func cmdProcesses(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: processes N EXPR")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	expr, err := regexp.Compile(args[1])
	ts.Check(err)
	awaitProcesses(ts, stageOf(ts).data, expr, n)
}

// awaitProcesses waits until n processes that speak of a folder match. What
// was killed a moment ago may need one to go.
func awaitProcesses(ts *testscript.TestScript, folder string, expr *regexp.Regexp, n int) {
	var found []string
	for deadline := time.Now().Add(patience / 3); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		found = found[:0]
		for _, line := range left(folder) {
			if expr.MatchString(line) {
				found = append(found, line)
			}
		}
		if len(found) == n {
			return
		}
	}
	ts.Fatalf("%d processes match %s, want %d:\n%s", len(found), expr, n, strings.Join(found, "\n"))
}

// httpMain is the program http of the stories.
func httpMain() {
	if err := httpRequest(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "http:", err)
		os.Exit(1)
	}
}

func httpRequest(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: http METHOD URL [-H 'Name: value'] [-d BODY|@FILE]")
	}
	var body io.Reader
	header := http.Header{"Content-Type": {"application/json"}}
	for rest := args[2:]; len(rest) > 1; rest = rest[2:] {
		switch rest[0] {
		case "-H":
			name, value, _ := strings.Cut(rest[1], ":")
			header.Set(name, strings.TrimSpace(value))
		case "-d":
			if name, ok := strings.CutPrefix(rest[1], "@"); ok {
				f, err := os.Open(name)
				if err != nil {
					return err
				}
				defer func() { _ = f.Close() }()
				body = f
			} else {
				body = strings.NewReader(rest[1])
			}
		}
	}
	req, err := http.NewRequest(args[0], args[1], body)
	if err != nil {
		return err
	}
	req.Header = header
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	fmt.Println(res.StatusCode)
	_, err = io.Copy(os.Stdout, res.Body)
	return err
}

// typesMain is the program types of the stories.
func typesMain() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var e struct{ Type string }
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			fmt.Fprintln(os.Stderr, "types:", err)
			os.Exit(1)
		}
		fmt.Println(e.Type)
	}
}
