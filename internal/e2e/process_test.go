package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience turns a hang into a failure; nothing here takes a tenth of it.
const patience = 90 * time.Second

// process is a run of the program.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it was waited for and its output is read

	mu   sync.Mutex
	text strings.Builder
	more chan struct{} // closed when there is more text
}

// start runs the program with these variables and nothing else of our
// environment. A socket becomes its file 3.
func start(env []string, socket *os.File, args ...string) (*process, error) {
	return startFrom(binaries, env, socket, args...)
}

// startFrom is start with the program of another folder.
func startFrom(folder string, env []string, socket *os.File, args ...string) (*process, error) {
	env, err := bases.env(env, args)
	if err != nil {
		return nil, err
	}
	return launch(exec.Command(filepath.Join(folder, "aurea"), args...), env, socket)
}

// launch runs a command that becomes the program.
func launch(cmd *exec.Cmd, env []string, socket *os.File) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan struct{}), more: make(chan struct{})}
	p.cmd.Env = append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/", "AUREA_IMAGES=" + images}, env...)
	p.cmd.Dir = "/"
	if socket != nil {
		p.cmd.ExtraFiles = []*os.File{socket}
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	err = p.cmd.Start()
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		return nil, err
	}
	go func() {
		defer close(p.ended)
		defer func() { _ = r.Close() }()
		// The pipe ends with the last process that has it: also with a child
		// that outlives its parent, which therefore cannot go unnoticed.
		p.read(r)
		_ = p.cmd.Wait()
	}()
	return p, nil
}

func (p *process) read(r io.Reader) {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		p.mu.Lock()
		p.text.WriteString(line)
		close(p.more)
		p.more = make(chan struct{})
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// expect waits until the text was said.
func (p *process) expect(text string) error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		p.mu.Lock()
		said, more := p.text.String(), p.more
		p.mu.Unlock()
		if strings.Contains(said, text) {
			return nil
		}
		select {
		case <-more:
		case <-p.ended:
			if strings.Contains(p.said(), text) {
				return nil
			}
			return fmt.Errorf("aurea %s ended without saying %q:\n%s", p.cmd.Args[1], text, p.said())
		case <-timeout.C:
			return fmt.Errorf("aurea %s does not say %q:\n%s", p.cmd.Args[1], text, p.said())
		}
	}
}

// after returns the word behind a text.
func (p *process) after(text string) (string, error) {
	if err := p.expect(text); err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(p.said(), text)
	word, _, _ := strings.Cut(strings.TrimLeft(rest, " "), "\n")
	word, _, _ = strings.Cut(word, " ")
	return word, nil
}

// kill ends it as a power cut would, and waits until it and all that holds its
// output are gone.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return p.wait()
}

// stop asks it to end, and returns its exit code.
func (p *process) stop() (int, error) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.wait(); err != nil {
		_ = p.cmd.Process.Kill()
		<-p.ended
		return -1, err
	}
	return p.cmd.ProcessState.ExitCode(), nil
}

func (p *process) wait() error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-p.ended:
		return nil
	case <-timeout.C:
		return fmt.Errorf("aurea %s does not end:\n%s", p.cmd.Args[1], p.said())
	}
}

// socket opens a listening socket on loopback that outlives the processes that
// serve on it, so that the address stays while they come and go.
func socket() (f *os.File, url string, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = ln.Close() }()
	f, err = ln.(*net.TCPListener).File()
	return f, "http://" + ln.Addr().String(), err
}

// children returns the process ids of the roles below a supervisor.
func children(supervisor int) map[string]int {
	found := map[string]int{}
	for pid, args := range processes() {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil || !strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", supervisor)) {
			continue
		}
		if len(args) > 1 && args[0] == "aurea" {
			found[args[1]] = pid
		}
	}
	return found
}

// processes returns the command line of every process that has one.
func processes() map[int][]string {
	found := map[int][]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		pid, perr := strconv.Atoi(filepath.Base(dir))
		if err == nil && perr == nil && len(line) > 0 {
			found[pid] = strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		}
	}
	return found
}

// left names the processes whose command line or environment speaks of a
// folder: what a story started and did not end.
func left(folder string) (found []string) {
	for pid, args := range processes() {
		line := strings.Join(args, " ")
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if pid != os.Getpid() && (strings.Contains(line, folder) || strings.Contains(string(environ), folder)) {
			found = append(found, fmt.Sprintf("%d %s", pid, line))
		}
	}
	return found
}
