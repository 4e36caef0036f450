package language

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/aurea-dev/aurea/internal/fault"
)

func shipped(t testing.TB) *Registry {
	t.Helper()
	r, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLookup(t *testing.T) {
	t.Parallel()
	r := shipped(t)
	if d := cmp.Diff([]string{"bash", "c", "javascript", "perl", "python", "ruby", "shell"}, r.Names()); d != "" {
		t.Error(d)
	}
	for word, want := range map[string]string{
		"python": "python", " Python\n": "python", "PYTHON3": "python", "js": "javascript", "Node": "javascript",
		"bash": "bash", "sh": "shell", "SHELL": "shell", "rb": "ruby", "c": "c", "": "", "cobol": "", "pyth": "",
	} {
		if l, ok := r.Lookup(word); l.Name != want || ok != (want != "") {
			t.Errorf("%q is %q, not %q", word, l.Name, want)
		}
	}
	_, err := r.Find("cobol")
	if fault.KindOf(err) != fault.Invalid || fault.CodeOf(err) != "unknown_language" || !strings.Contains(err.Error(), "bash, c, javascript") {
		t.Errorf("an unknown language gave %v", err)
	}
}

func TestForFile(t *testing.T) {
	t.Parallel()
	r := shipped(t)
	for _, tc := range []struct{ name, content, want string }{
		{"a.py", "", "python"},
		{"dir.c/A.PY", "", "python"},
		{"a.cjs", "", "javascript"},
		{"x.sh", "#!/usr/bin/env python3\n", "bash"},
		{"x", "#!/usr/bin/env python3\nprint(1)", "python"},
		{"x", "#! /usr/bin/python3.11 -u\r\n", "python"},
		{"x", "#!/usr/bin/env -S LANG=C ruby -w\n", "ruby"},
		{"-", "#!/bin/sh", "shell"},
		{"x", "#!/usr/bin/python2.7\n", ""},
		{"x", "#!\n", ""},
		{"x", "#!/usr/bin/env\n", ""},
		{"x", "print(1) #!/bin/sh\n", ""},
		{"x.txt", "", ""},
		{"", "", ""},
	} {
		if l, _ := r.ForFile(tc.name, []byte(tc.content)); l.Name != tc.want {
			t.Errorf("%q with %q is %q, not %q", tc.name, tc.content, l.Name, tc.want)
		}
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	r := shipped(t)
	python, _ := r.Lookup("python")
	if d := cmp.Diff([]string{"python3", "main.py", "{file}", "-x"}, python.RunCommand(python.File, "", []string{"{file}", "-x"})); d != "" {
		t.Error("an argument is handed over as it is:", d)
	}
	if python.CompileCommand("main.py", "out") != nil {
		t.Error("there is nothing to compile")
	}
	c, _ := r.Lookup("c")
	if d := cmp.Diff([]string{"/tmp/main", "a"}, c.RunCommand(c.File, "/tmp/main", []string{"a"})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"cc", "-O2", "-o", "/tmp/main", "main.c", "-lm"}, c.CompileCommand(c.File, "/tmp/main")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"cc"}, c.Programs()); d != "" {
		t.Error(d)
	}
	if c.Compile.Timeout != 30*time.Second {
		t.Errorf("the compile step may take %s", c.Compile.Timeout)
	}
}

func TestOperatorsFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "languages.json")
	const own = `{"languages": [
		{"name": "awk", "file": "main.awk", "extensions": [".awk"], "command": ["awk", "-f", "{file}"]},
		{"name": "python", "aliases": ["py"], "file": "main.py", "command": ["/opt/python/bin/python3", "-I", "{file}"], "image": "science:latest"}
	]}`
	if err := os.WriteFile(file, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(r.Names(), "awk") || !slices.Contains(r.Names(), "ruby") {
		t.Errorf("there are %q", r.Names())
	}
	if l, _ := r.Lookup("py"); l.Command[0] != "/opt/python/bin/python3" || l.Image != "science:latest" || l.Warm != "" {
		t.Errorf("py is %+v", l)
	}
	if _, ok := r.Lookup("python3"); ok {
		t.Error("an entry takes the place of the other whole, with its aliases")
	}
	if l, _ := r.ForFile("x.awk", nil); l.Name != "awk" {
		t.Errorf("x.awk is %q", l.Name)
	}
	if _, err := Load(file + ".missing"); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a file that is not there gave %v", err)
	}
}

func TestRefusedEntries(t *testing.T) {
	t.Parallel()
	for why, entry := range map[string]string{
		"no name":               `{"file":"x","command":["x","{file}"]}`,
		"an upper-case name":    `{"name":"X","file":"x","command":["x","{file}"]}`,
		"a path as file":        `{"name":"x","file":"../x","command":["x","{file}"]}`,
		"a hidden file":         `{"name":"x","file":".x","command":["x","{file}"]}`,
		"a file like a flag":    `{"name":"x","file":"-x","command":["x","{file}"]}`,
		"no command":            `{"name":"x","file":"x"}`,
		"no code in it":         `{"name":"x","file":"x","command":["x"]}`,
		"a part of a word":      `{"name":"x","file":"x","command":["x","--in={file}"]}`,
		"out without compile":   `{"name":"x","file":"x","command":["{out}"]}`,
		"a relative program":    `{"name":"x","file":"x","command":["./x","{file}"]}`,
		"a program with dots":   `{"name":"x","file":"x","command":["/bin/../x","{file}"]}`,
		"a NUL":                 `{"name":"x","file":"x","command":["x","{file}","a\u0000b"]}`,
		"compile without code":  `{"name":"x","file":"x","command":["{out}"],"compile":{"command":["cc"]}}`,
		"an endless compile":    `{"name":"x","file":"x","command":["{out}"],"compile":{"command":["cc","{file}"],"timeout":"1h"}}`,
		"a negative compile":    `{"name":"x","file":"x","command":["{out}"],"compile":{"command":["cc","{file}"],"timeout":"-1s"}}`,
		"a number as timeout":   `{"name":"x","file":"x","command":["{out}"],"compile":{"command":["cc","{file}"],"timeout":"30"}}`,
		"an unknown field":      `{"name":"x","file":"x","command":["x","{file}"],"comand":[]}`,
		"an unknown inner one":  `{"name":"x","file":"x","command":["{out}"],"compile":{"command":["cc","{file}"],"time":"1s"}}`,
		"a field twice":         `{"name":"x","file":"x","command":["x","{file}"],"Name":"y"}`,
		"a bad extension":       `{"name":"x","file":"x","command":["x","{file}"],"extensions":["py"]}`,
		"two dots":              `{"name":"x","file":"x","command":["x","{file}"],"extensions":[".tar.gz"]}`,
		"a bad shebang":         `{"name":"x","file":"x","command":["x","{file}"],"shebangs":["/bin/x"]}`,
		"a bad need":            `{"name":"x","file":"x","command":["x","{file}"],"needs":["a b"]}`,
		"an image like a flag":  `{"name":"x","file":"x","command":["x","{file}"],"image":"--privileged"}`,
		"a launcher by path":    `{"name":"x","file":"x","command":["x","{file}"],"warm":"../x"}`,
		"a word of another's":   `{"name":"x","file":"x","command":["x","{file}"],"aliases":["node"]}`,
		"its own word twice":    `{"name":"x","file":"x","command":["x","{file}"],"aliases":["x"]}`,
		"another's extension":   `{"name":"x","file":"x","command":["x","{file}"],"extensions":[".py"]}`,
		"another's shebang":     `{"name":"x","file":"x","command":["x","{file}"],"shebangs":["bash"]}`,
		"the same name, double": `{"name":"x","file":"x","command":["x","{file}"]},{"name":"x","file":"x","command":["x","{file}"]}`,
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "languages.json")
			if err := os.WriteFile(file, []byte(`{"languages": [`+entry+`]}`), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(file); fault.KindOf(err) != fault.Invalid {
				t.Errorf("gave %v", err)
			}
		})
	}
	for _, file := range []string{``, `[]`, `{`, `{"languages":[]} x`, `{"languages":{}}`, `{"langs":[]}`, "{\"languages\":[], \"\xff\":1}"} {
		if _, err := Parse([]byte(file)); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q gave %v", file, err)
		}
	}
}

// Whatever an operator's file holds, it is refused, or every entry of it can be
// run, and is the same after it was written and read again.
func FuzzParse(f *testing.F) {
	whole, err := embedded.ReadFile("languages.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"languages": []}`))
	f.Add([]byte(`{"languages": [{"name":"x","file":"x","command":["{out}"],"compile":{"command":["cc","{file}"],"timeout":"1s"}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := Parse(data)
		if err != nil {
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("%v", err)
			}
			return
		}
		for _, l := range all {
			if command := l.RunCommand(l.File, "out", nil); len(command) == 0 || command[0] == "" {
				t.Errorf("%s runs %q", l.Name, command)
			}
			_ = l.Programs()
		}
		again, err := json.Marshal(map[string]any{"languages": all})
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 0 {
			return
		}
		same, err := Parse(again)
		if err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if d := cmp.Diff(all, same, cmpopts.EquateEmpty()); d != "" {
			t.Error(d)
		}
	})
}

func FuzzShebang(f *testing.F) {
	r := shipped(f)
	f.Add([]byte("#!/usr/bin/env -S python3 -u\n"))
	f.Add([]byte("#!\xff\n"))
	f.Fuzz(func(_ *testing.T, data []byte) { r.ForFile("x", data) })
}
