package fake

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// run does one program and returns its exit code.
func (t *task) run(argv []string) int {
	if !t.step() {
		return 0
	}
	file, code := t.find(argv[0])
	if code != 0 {
		return code
	}
	if file != nil {
		if strings.HasPrefix(string(file.data), "#!/bin/sh") {
			return t.shell(string(file.data), argv)
		}
		return t.wouldRun(argv)
	}
	switch name := path.Base(argv[0]); name {
	case "sh", "bash", "dash":
		return t.runShell(argv)
	default:
		return t.builtin(name, argv)
	}
}

// find looks for the program: a file that was put into the sandbox, or nil for
// one that a real image would have.
func (t *task) find(name string) (*node, int) {
	if strings.Contains(name, "/") {
		file, err := t.p.box.tree.stat(t.at(name))
		if err == nil {
			if file.isDir() || file.mode&0o111 == 0 {
				return nil, t.complain(126, name+": Permission denied")
			}
			return file, 0
		}
		if inSystem(path.Dir(t.at(name))) {
			return nil, 0
		}
		return nil, t.complain(127, name+": not found")
	}
	search, ok := t.lookup("PATH")
	if !ok || t.depth > 0 && ofShell(name) {
		return nil, 0
	}
	for dir := range strings.SplitSeq(search, ":") {
		file, err := t.p.box.tree.stat(path.Join(dir, name))
		if err == nil && !file.isDir() && file.mode&0o111 != 0 {
			return file, 0
		}
		if inSystem(dir) {
			return nil, 0
		}
	}
	return nil, t.complain(127, name+": not found")
}

// ofShell reports whether a shell does the command itself.
func ofShell(name string) bool {
	switch name {
	case "true", "false", ":", "echo", "pwd", "cd", "exit", "wait", "kill", "test", "[":
		return true
	}
	return false
}

// inSystem reports whether programs in the folder are taken to exist.
func inSystem(dir string) bool {
	for _, system := range []string{"/bin", "/sbin", "/usr"} {
		if dir == system || strings.HasPrefix(dir, system+"/") {
			return true
		}
	}
	return false
}

func (t *task) wouldRun(argv []string) int {
	t.print(1, fmt.Appendf(nil, "fake: would run %q\n", argv))
	return 0
}

// runShell does sh -c SCRIPT, sh FILE, and sh with a script on its input.
func (t *task) runShell(argv []string) int {
	switch {
	case len(argv) >= 3 && argv[1] == "-c":
		return t.shell(argv[2], argv)
	case len(argv) >= 2 && !strings.HasPrefix(argv[1], "-"):
		file, err := t.p.box.tree.stat(t.at(argv[1]))
		if err != nil || file.isDir() {
			return t.complain(127, argv[1]+": cannot open")
		}
		return t.shell(string(file.data), argv)
	case len(argv) == 1:
		var text []byte
		t.read(func(data []byte) { text = append(text, data[:min(len(data), maxScript)]...) })
		return t.shell(string(text), argv)
	}
	return t.wouldRun(argv)
}

// shell does a script, or says what would be run when it is beyond us.
func (t *task) shell(text string, argv []string) int {
	const deepest = 16
	if t.depth >= deepest {
		return t.complain(126, "scripts call each other too deeply")
	}
	commands, err := parse(text)
	if errors.Is(err, errSyntax) {
		return t.complain(2, "syntax error")
	}
	if err != nil {
		return t.wouldRun(argv)
	}
	t.depth++
	outer, vars, dir := t.exiting, cloneVars(t.vars), t.dir
	code := t.list(commands)
	t.depth--
	t.exiting, t.vars, t.dir = outer, vars, dir
	return code
}

// list does commands in order, by their joints.
func (t *task) list(commands []command) int {
	t.status = 0
	for i := 0; i < len(commands) && !t.exiting && t.step(); {
		// An and-or list that ends in "&" goes to the background as a whole.
		end := i
		for end < len(commands)-1 && (commands[end].join == "&&" || commands[end].join == "||") {
			end++
		}
		group := commands[i : end+1]
		i = end + 1
		if commands[end].join == "&" {
			group = append([]command(nil), group...)
			group[len(group)-1].join = ";"
			t.status = t.background(group)
			continue
		}
		t.andOr(group)
	}
	return t.status
}

func (t *task) andOr(group []command) {
	skip := false
	for _, c := range group {
		if !skip {
			t.status = t.simple(c)
		}
		if t.exiting || t.stopped() {
			return
		}
		skip = c.join == "&&" && t.status != 0 || c.join == "||" && t.status == 0
	}
}

// simple does one command with its redirections.
func (t *task) simple(c command) int {
	out, input := t.out, t.input
	defer func() { t.out, t.input = out, input }()
	for _, r := range c.redirects {
		if code := t.redirect(r); code != 0 {
			return code
		}
	}
	words := c.words
	for len(words) > 0 && t.assign(words[0]) {
		words = words[1:]
	}
	var argv []string
	for _, w := range words {
		fields, ok := t.expand(w)
		if !ok {
			return t.complain(1, "a word grew too long")
		}
		argv = append(argv, fields...)
	}
	if len(argv) == 0 {
		return 0
	}
	if argv[0] == "" {
		return t.complain(127, "not found")
	}
	return t.run(argv)
}

func (t *task) redirect(r redirect) int {
	if r.file == nil {
		t.out[r.fd] = t.out[r.copyOf]
		return 0
	}
	fields, ok := t.expand(r.file)
	if !ok || len(fields) != 1 {
		return t.complain(1, "ambiguous redirection")
	}
	name := t.at(fields[0])
	if r.fd == 0 {
		file, err := t.p.box.tree.stat(name)
		if name == "/dev/null" {
			file, err = &node{}, nil
		}
		if err != nil {
			return t.complain(1, fields[0]+": "+reason(err))
		}
		t.input = file
		return 0
	}
	if name == "/dev/null" {
		t.out[r.fd] = target{}
		return 0
	}
	if err := t.p.box.tree.write(name, nil, r.extend); err != nil {
		return t.complain(1, fields[0]+": "+reason(err))
	}
	t.out[r.fd] = target{file: name}
	return 0
}

// assign does NAME=value.
func (t *task) assign(w word) bool {
	if len(w) == 0 || w[0].variable || w[0].quoted {
		return false
	}
	n := nameLen(w[0].text)
	if n == 0 || n == len(w[0].text) || w[0].text[n] != '=' {
		return false
	}
	value := append(word{{text: w[0].text[n+1:], quoted: true}}, w[1:]...)
	fields, ok := t.expand(value)
	if !ok {
		return false
	}
	if t.vars == nil {
		t.vars = map[string]string{}
	}
	t.vars[w[0].text[:n]] = strings.Join(fields, " ")
	return true
}

// expand puts variables in their places, and splits those that are not quoted.
func (t *task) expand(w word) ([]string, bool) {
	var fields []string
	var current strings.Builder
	open := false
	for _, p := range w {
		text := p.text
		if p.variable {
			text, _ = t.lookup(p.text)
		}
		if current.Len()+len(text) > maxScript {
			return nil, false
		}
		if !p.variable || p.quoted {
			current.WriteString(text)
			open = open || p.quoted || text != ""
			continue
		}
		for i, part := range strings.Fields(text) {
			if i > 0 {
				fields = append(fields, current.String())
				current.Reset()
			}
			current.WriteString(part)
			open = true
		}
	}
	if open {
		fields = append(fields, current.String())
	}
	return fields, true
}
