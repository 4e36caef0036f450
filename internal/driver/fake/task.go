package fake

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// target is where a stream of a task goes.
type target struct {
	stream sandbox.Stream // 0 when it is a file
	file   string         // "" with stream 0 is nowhere
}

// task is one line of work in a process: the program, or a list that it put in
// the background.
type task struct {
	p     *process
	quit  chan struct{}
	once  sync.Once
	ended chan struct{}

	vars     map[string]string // set by the script itself
	dir      string
	out      [3]target // 1 and 2
	input    *node     // what < gave, or nil for the process's own input
	clock    time.Time // for a recovered process: where it stood in its own time
	depth    int
	status   int
	exiting  bool
	children []*task
}

// newTask adds a task to the process, if it lives and the sandbox has room.
func (p *process) newTask() (*task, bool) {
	t := &task{
		p: p, quit: make(chan struct{}), ended: make(chan struct{}), dir: p.spec.Dir, clock: p.started,
		out: [3]target{1: {stream: sandbox.Stdout}, 2: {stream: sandbox.Stderr}},
	}
	if t.dir == "" {
		t.dir = "/workspace"
	}
	if !p.box.enter() {
		return nil, false
	}
	p.mu.Lock()
	p.tasks = append(p.tasks, t)
	if p.reaped {
		t.stop()
	}
	p.mu.Unlock()
	return t, true
}

// stop asks the task to end as soon as it looks. From now on it does nothing,
// so it is no longer counted.
func (t *task) stop() {
	t.once.Do(func() {
		close(t.quit)
		t.p.box.discount()
	})
}

// leave says that the task has ended.
func (t *task) leave() {
	t.stop()
	close(t.ended)
	t.p.box.running.Done()
}

// main is the program itself.
func (t *task) main() {
	defer t.leave()
	t.p.box.used(t.p.script.cpu)
	t.sleep(t.p.script.sleep)
	if !t.step() {
		return
	}
	s := t.p.script
	limit := t.p.box.spec.Limits.Memory
	t.p.box.needed(s.memory)
	switch {
	case s.crash == stepRun:
		t.p.box.crash()
	case s.hang == stepRun:
		if t.p.past == nil {
			<-t.quit
		}
	case s.listen != 0:
		if t.p.past == nil {
			t.listen(s.listen)
		}
	case s.oom, limit > 0 && s.memory > limit:
		t.play()
		t.p.box.starve()
	case s.scripted:
		t.play()
		exit := sandbox.Exit{Code: s.exit}
		if s.signal != 0 {
			exit = sandbox.Exit{Code: -1, Signal: s.signal}
		}
		t.end(exit)
	default:
		code := t.run(t.p.spec.Command)
		t.end(sandbox.Exit{Code: code})
	}
}

// end is the program's own end, unless it was stopped before.
func (t *task) end(exit sandbox.Exit) {
	if !t.stopped() {
		t.stop()
		t.p.finish(exit)
	}
}

// play prints what the environment asks for.
func (t *task) play() {
	s := t.p.script
	t.print(1, []byte(s.stdout))
	t.print(2, []byte(s.stderr))
	t.flood(1, asLines, s.output)
}

func (t *task) stopped() bool {
	select {
	case <-t.quit:
		return true
	default:
		return false
	}
}

// step is passed before each thing that a task does; it holds a paused one, and
// is false when there is nothing more to do.
func (t *task) step() bool {
	if !t.p.box.pass(t.quit) {
		return false
	}
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	if past := t.p.past; past != nil && t.p.steps >= past.Steps {
		return false
	}
	t.p.steps++
	return true
}

// sleep passes the time, or what is left of it for a recovered process.
func (t *task) sleep(d time.Duration) {
	if d <= 0 || t.p.past != nil {
		return
	}
	if t.p.recovered {
		t.clock = t.clock.Add(d)
		d = time.Until(t.clock)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.quit:
	}
}

// background starts a list of commands as a task of its own.
func (t *task) background(commands []command) int {
	child, ok := t.p.newTask()
	if !ok {
		return t.complain(2, "cannot fork: the sandbox may have no more processes")
	}
	child.vars, child.dir, child.out, child.input = cloneVars(t.vars), t.dir, t.out, &node{}
	child.clock, child.depth = t.clock, t.depth
	t.children = append(t.children, child)
	go func() {
		defer child.leave()
		child.list(commands)
	}()
	return 0
}

// wait waits for what the task has in the background.
func (t *task) wait() {
	for _, child := range t.children {
		select {
		case <-child.ended:
		case <-t.quit:
			return
		}
	}
}

// print sends bytes to where the stream goes.
func (t *task) print(fd int, data []byte) {
	to := t.out[fd]
	switch {
	case to.stream != 0:
		t.p.emit(segment{stream: to.stream, data: data})
	case to.file != "":
		if err := t.p.box.tree.write(to.file, data, true); err != nil && fd == 1 {
			t.complain(1, to.file+": "+reason(err))
		}
	}
}

// flood sends n bytes that a rule makes.
func (t *task) flood(fd int, r rule, n int64) {
	to := t.out[fd]
	if to.stream != 0 {
		t.p.emit(segment{stream: to.stream, rule: r, length: n})
		return
	}
	if to.file == "" {
		return
	}
	if n > t.p.box.tree.limit {
		t.complain(1, to.file+": no space left on device")
		return
	}
	data := make([]byte, n)
	for i := range data {
		data[i] = r.at(int64(i))
	}
	t.print(fd, data)
}

// complain prints a message of ours and returns the code.
func (t *task) complain(code int, message string) int {
	if t.out[2].stream != 0 { // a file that is full cannot take the complaint about it
		t.p.emit(segment{stream: t.out[2].stream, data: []byte("fake: " + message + "\n")})
	}
	return code
}

// read returns the task's whole input, in pieces as it comes.
func (t *task) read(each func([]byte)) {
	if t.input != nil {
		each(t.input.data)
		return
	}
	for {
		t.p.mu.Lock()
		data, closed := t.p.input, t.p.inputClosed
		t.p.input = nil
		t.p.tell()
		changed := t.p.changed()
		t.p.mu.Unlock()
		if len(data) > 0 {
			each(data)
			continue
		}
		if closed || t.p.past != nil {
			return
		}
		select {
		case <-changed:
			t.clock = time.Now()
		case <-t.quit:
			return
		}
	}
}

// lookup finds a variable: the script's own, the exec's, the sandbox's.
func (t *task) lookup(name string) (string, bool) {
	switch name {
	case "?":
		return fmt.Sprint(t.status), true
	case "$":
		return "1", true
	case "PWD":
		return t.dir, true
	}
	for _, env := range []map[string]string{t.vars, t.p.spec.Env, t.p.box.spec.Env} {
		if v, ok := env[name]; ok {
			return v, true
		}
	}
	return "", false
}

// at makes a path absolute.
func (t *task) at(name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return path.Join(t.dir, name)
}

func cloneVars(vars map[string]string) map[string]string {
	c := make(map[string]string, len(vars))
	for k, v := range vars {
		c[k] = v
	}
	return c
}

// reason words a tree's error as programs do.
func reason(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "No such file or directory"
	}
	return err.Error()
}
