package pool

import (
	"archive/tar"
	"bytes"
	"embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
)

//go:embed launcher/python.py launcher/node.js
var scripts embed.FS

// launcherPlace is where a launcher's script lies in a sandbox. Nothing of it is
// shown where people look.
const launcherPlace = "/tmp/.aurea"

// mark is what a launcher says when its interpreter waits.
const mark = "aurea: ready\n"

// launcher holds an interpreter back between its own start and the moment at
// which it would open the program. The interpreter is started with the command
// line that the program is run with, and runs it by itself once it is let go:
// what the program finds is what it would find in any case.
type launcher struct {
	script string // which file of ours
	file   string // what it is called in the sandbox
	// locked keeps the script from being changed; one that is not removes itself.
	locked bool
	env    map[string]string
	// fixed are the variables, by name or by the beginning of their names, that
	// an interpreter reads as it starts: a program that is given one of them
	// cannot have an interpreter that was started before.
	fixed []string
}

// launchers are those that a language of the registry can name.
func launchers() map[string]launcher {
	machine := []string{"LD_*", "LC_*", "LANG*", "GLIBC_*", "MALLOC_*", "PATH", "HOME", "TZ*", "TMPDIR", "OPENSSL_*", "SSL_*"}
	return map[string]launcher{
		"python": {
			script: "python.py", file: "sitecustomize.py",
			env:   map[string]string{"AUREA_LAUNCHER": launcherPlace, "PYTHONPATH": launcherPlace},
			fixed: append([]string{"PYTHON*", "__PYVENV*", "VIRTUAL_ENV"}, machine...),
		},
		"node": {
			script: "node.js", file: "node.js", locked: true,
			env:   map[string]string{"AUREA_LAUNCHER": launcherPlace, "NODE_OPTIONS": "--require=" + launcherPlace + "/node.js"},
			fixed: append([]string{"NODE*", "UV_*", "ICU_*", "NO_COLOR", "FORCE_COLOR"}, machine...),
		},
	}
}

// takes reports whether a program with these variables can have an interpreter
// that was started without them.
func (l launcher) takes(env map[string]string) bool {
	for name := range env {
		if slices.ContainsFunc(l.fixed, func(f string) bool {
			if begin, any := strings.CutSuffix(f, "*"); any {
				return strings.HasPrefix(name, begin)
			}
			return name == f
		}) {
			return false
		}
	}
	return true
}

// archive packs the script.
func (l launcher) archive() (*bytes.Reader, error) {
	text, err := scripts.ReadFile("launcher/" + l.script)
	if err != nil {
		return nil, fmt.Errorf("read the launcher: %w", err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: l.file, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}); err != nil {
		return nil, fmt.Errorf("pack the launcher: %w", err)
	}
	if _, err := w.Write(text); err != nil {
		return nil, fmt.Errorf("pack the launcher: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack the launcher: %w", err)
	}
	return bytes.NewReader(b.Bytes()), nil
}

// maxHandOver bounds what is handed over: more than a program could be started
// with anyway.
const maxHandOver = 4 << 20

// handOver is what a launcher reads from the program's input before the program
// does, to the byte: the length, then the arguments and the environment.
func handOver(args, env []string) ([]byte, error) {
	var body bytes.Buffer
	body.WriteString(strconv.Itoa(len(args)))
	body.WriteByte(0)
	for _, text := range slices.Concat(args, env) {
		if strings.ContainsRune(text, 0) {
			return nil, fault.New(fault.Invalid, "arguments and environment cannot hold a NUL byte")
		}
		body.WriteString(text)
		body.WriteByte(0)
	}
	if body.Len() > maxHandOver {
		return nil, fault.New(fault.TooLarge, "arguments and environment have %d bytes; at most %d can be handed over", body.Len(), maxHandOver)
	}
	return append(fmt.Appendf(nil, "%010d", body.Len()), body.Bytes()...), nil
}
