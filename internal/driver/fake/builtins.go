package fake

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"
)

// builtin does what we know by name.
func (t *task) builtin(name string, argv []string) int {
	args := argv[1:]
	switch name {
	case "true", ":":
		return 0
	case "false":
		return 1
	case "echo":
		end := "\n"
		if len(args) > 0 && args[0] == "-n" {
			args, end = args[1:], ""
		}
		t.print(1, []byte(strings.Join(args, " ")+end))
		return 0
	case "pwd":
		t.print(1, []byte(t.dir+"\n"))
		return 0
	case "exit":
		return t.exit(args)
	case "wait":
		t.wait()
		return 0
	case "sleep":
		return t.doSleep(args)
	case "kill":
		return t.kill(args)
	case "printenv":
		if len(args) == 1 {
			v, ok := t.lookup(args[0])
			if !ok {
				return 1
			}
			t.print(1, []byte(v+"\n"))
			return 0
		}
	case "stty":
		if len(args) == 1 && args[0] == "size" && t.p.spec.TTY {
			t.p.mu.Lock()
			size := fmt.Sprintf("%d %d\n", t.p.rows, t.p.cols)
			t.p.mu.Unlock()
			t.print(1, []byte(size))
			return 0
		}
	case "cat", "head", "cd", "mkdir", "touch", "rm", "ln", "test", "[":
		return t.fileCommand(name, argv)
	}
	return t.wouldRun(argv)
}

func (t *task) exit(args []string) int {
	t.exiting = true
	if len(args) == 0 {
		return t.status
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return t.complain(2, "exit: "+args[0]+": not a number")
	}
	return n & 0xff
}

func (t *task) doSleep(args []string) int {
	if len(args) != 1 {
		return t.complain(1, "sleep: say how long")
	}
	if args[0] == "infinity" {
		args[0] = "876000h"
	}
	d, err := time.ParseDuration(args[0])
	if err != nil {
		d, err = time.ParseDuration(args[0] + "s")
	}
	if err != nil || d < 0 {
		return t.complain(1, "sleep: "+args[0]+": not a time")
	}
	t.sleep(d)
	return 0
}

// kill sends a signal to the process itself: there is nobody else to reach.
func (t *task) kill(args []string) int {
	signal := 15
	if len(args) == 2 {
		names := map[string]int{"HUP": 1, "INT": 2, "QUIT": 3, "ABRT": 6, "KILL": 9, "USR1": 10, "SEGV": 11, "USR2": 12, "TERM": 15}
		name := strings.TrimPrefix(strings.TrimPrefix(args[0], "-"), "SIG")
		n, err := strconv.Atoi(name)
		if named, ok := names[name]; ok {
			n, err = named, nil
		}
		if err != nil {
			return t.complain(1, "kill: "+args[0]+": no such signal")
		}
		signal, args = n, args[1:]
	}
	if len(args) != 1 || args[0] != "1" && args[0] != "0" {
		return t.complain(1, "kill: only $$ can be reached")
	}
	if err := t.p.signal(signal, false); err != nil {
		return t.complain(1, "kill: "+err.Error())
	}
	return 0
}

// fileCommand does what works on the sandbox's files.
func (t *task) fileCommand(name string, argv []string) int {
	args := argv[1:]
	switch name {
	case "cat":
		return t.cat(args)
	case "head":
		return t.head(argv)
	case "cd":
		if len(args) != 1 {
			return t.complain(1, "cd: say where")
		}
		folder, err := t.p.box.tree.stat(t.at(args[0]))
		if err != nil || !folder.isDir() {
			return t.complain(1, "cd: "+args[0]+": no such folder")
		}
		t.dir = path.Clean(t.at(args[0]))
		return 0
	case "ln":
		if len(args) != 3 || args[0] != "-s" {
			return t.wouldRun(argv)
		}
		return t.try(name, t.p.box.tree.put(t.at(args[2]), &node{mode: fs.ModeSymlink | 0o777, target: args[1]}, false))
	case "test", "[":
		return t.test(argv)
	}
	code := 0
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		var err error
		switch name {
		case "mkdir":
			err = t.p.box.tree.mkdirAll(t.at(arg))
		case "touch":
			err = t.p.box.tree.write(t.at(arg), nil, true)
		case "rm":
			if err = t.p.box.tree.remove(t.at(arg)); errors.Is(err, fs.ErrNotExist) && strings.Contains(args[0], "f") {
				err = nil
			}
		}
		code = max(code, t.try(name+": "+arg, err))
	}
	return code
}

func (t *task) try(what string, err error) int {
	if err == nil {
		return 0
	}
	return t.complain(1, what+": "+reason(err))
}

func (t *task) cat(args []string) int {
	if len(args) == 0 {
		args = []string{"-"}
	}
	code := 0
	for _, arg := range args {
		if !t.step() {
			return code
		}
		if arg == "-" {
			t.read(func(data []byte) { t.print(1, data) })
			continue
		}
		file, err := t.p.box.tree.stat(t.at(arg))
		if err == nil && file.isDir() {
			err = errors.New("Is a directory") //nolint:staticcheck // the words of cat
		}
		if err != nil {
			code = t.complain(1, "cat: "+arg+": "+reason(err))
			continue
		}
		t.print(1, file.data)
	}
	return code
}

// head does head -c N FILE, also of /dev/zero.
func (t *task) head(argv []string) int {
	if len(argv) != 4 || argv[1] != "-c" {
		return t.wouldRun(argv)
	}
	n, err := strconv.ParseInt(argv[2], 10, 62)
	if err != nil || n < 0 {
		return t.complain(1, "head: "+argv[2]+": not a number")
	}
	if argv[3] == "/dev/zero" {
		t.flood(1, asZeros, n)
		return 0
	}
	file, err := t.p.box.tree.stat(t.at(argv[3]))
	if err != nil {
		return t.complain(1, "head: "+argv[3]+": "+reason(err))
	}
	t.print(1, file.data[:min(n, int64(len(file.data)))])
	return 0
}

// test does -e, -f, -d, and = of two texts.
func (t *task) test(argv []string) int {
	args := argv[1:]
	if argv[0] == "[" {
		if len(args) == 0 || args[len(args)-1] != "]" {
			return t.complain(2, "[: missing ]")
		}
		args = args[:len(args)-1]
	}
	holds := false
	switch {
	case len(args) == 3 && args[1] == "=":
		holds = args[0] == args[2]
	case len(args) == 2 && (args[0] == "-e" || args[0] == "-f" || args[0] == "-d"):
		file, err := t.p.box.tree.stat(t.at(args[1]))
		holds = err == nil && (args[0] == "-e" || file.isDir() == (args[0] == "-d"))
	default:
		return t.wouldRun(argv)
	}
	if holds {
		return 0
	}
	return 1
}
