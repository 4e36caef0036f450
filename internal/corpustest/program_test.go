package corpustest

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/run"
)

// programTimeout bounds each program.
const programTimeout = time.Minute

// program is one program of the corpus.
type program struct {
	Name     string // its language and file
	Language string
	Command  []string
	Code     string
	Files    map[string]string // the code among them
	Args     []string
	Env      map[string]string
	Stdin    string
	ReadOnly bool
	// Artifacts says that what it left is taken.
	Artifacts bool
}

// outcome is all that somebody who started a program can see of it.
type outcome struct {
	Stdout, Stderr []byte
	Code           int
	Signal         int
	Broken         string // why there is none
}

// header is what a program's first line may ask for, behind "corpus:".
type header struct {
	Args     []string          `json:"args"`
	Env      map[string]string `json:"env"`
	Files    map[string]string `json:"files"`
	Stdin    string            `json:"stdin"`
	Repeat   int               `json:"stdin_repeat"`
	ReadOnly *bool             `json:"readonly"`
}

// corpus reads the programs.
func corpus(t *testing.T) []program {
	t.Helper()
	registry, err := language.Default()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*/*.*")
	if err != nil {
		t.Fatal(err)
	}
	var all []program
	for _, file := range files {
		lang, err := registry.Find(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(code), "\n")
		var h header
		if _, asked, ok := strings.Cut(first, "corpus:"); ok {
			d := json.NewDecoder(strings.NewReader(asked))
			d.DisallowUnknownFields()
			if err := d.Decode(&h); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
		p := program{
			Name: lang.Name + "/" + filepath.Base(file), Language: lang.Name, Command: lang.RunCommand(lang.File, "", h.Args),
			Code: string(code), Args: h.Args, Env: h.Env, Stdin: strings.Repeat(h.Stdin, max(h.Repeat, 1)),
			ReadOnly: h.ReadOnly == nil || *h.ReadOnly, Files: map[string]string{lang.File: string(code)},
		}
		maps.Copy(p.Files, h.Files)
		all = append(all, p)
	}
	return all
}

// environ is the environment that a program finds, said here a second time so
// that a change of it is noticed.
func (p program) environ() []string {
	env := map[string]string{
		"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin", "HOME": "/workspace", "LANG": "C.UTF-8", "USER": "sandbox",
		"AUREA_ARTIFACTS": "/workspace/artifacts",
	}
	maps.Copy(env, p.Env)
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// order is the program as a worker gets it.
func (p program) order(id string) run.Order {
	files := maps.Clone(p.Files)
	maps.DeleteFunc(files, func(_, text string) bool { return text == p.Code })
	return run.Order{
		ID: id, Owner: "corpus", Language: p.Language, Code: p.Code, Files: files, Args: p.Args, Env: p.Env, Stdin: p.Stdin,
		Timeout: programTimeout, ReadOnly: p.ReadOnly, Artifacts: p.Artifacts,
	}
}

// What differs from one start to the next, whoever starts it.
var (
	processNumber = regexp.MustCompile(`\((node|pid):[0-9]+\)`)
	temporaryName = regexp.MustCompile(`/tmp/tmp[A-Za-z0-9_]+`)
	timeTaken     = regexp.MustCompile(`\bin [0-9]+\.[0-9]+s\b`)
)

func normal(out []byte) string {
	text := processNumber.ReplaceAllString(string(out), "($1:N)")
	text = timeTaken.ReplaceAllString(text, "in Ns")
	return temporaryName.ReplaceAllString(text, "/tmp/tmpN")
}

func (o outcome) normal() map[string]any {
	return map[string]any{"stdout": normal(o.Stdout), "stderr": normal(o.Stderr), "code": o.Code, "signal": o.Signal}
}
