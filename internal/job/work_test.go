package job_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
)

func TestParseWorkReadsEachAction(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]job.Work{
		`{}`:                                   {Action: job.CreateFile, Path: "result.txt", Content: to(job.ResultText), Files: map[string]string{"result.txt": job.ResultText}},
		`{"for":"its own workers","n":[1,{}]}`: {Action: job.CreateFile, Path: "result.txt", Content: to(job.ResultText), Files: map[string]string{"result.txt": job.ResultText}},
		`{"action":"create file","path":"a/b.txt","content":""}`:    {Action: job.CreateFile, Path: "a/b.txt", Content: to(""), Files: map[string]string{"a/b.txt": ""}},
		`{"action":" Write_FILES ","files":{"a":"x","b/c":"y"}}`:    {Action: job.WriteFiles, Files: map[string]string{"a": "x", "b/c": "y"}},
		`{"action":"exec","command":["ls","-l"],"env":{"A":"1"}}`:   {Action: job.Exec, Command: []string{"ls", "-l"}, Env: map[string]string{"A": "1"}},
		`{"action":"run","language":"python","code":"print(1)"}`:    {Action: job.Run, Language: "python", Code: "print(1)"},
		`{"action":"exec","command":["a"],"stdin":"x","image":"i"}`: {Action: job.Exec, Command: []string{"a"}, Stdin: "x", Image: "i"},
	} {
		got, err := job.ParseWork(json.RawMessage(payload))
		if err != nil {
			t.Errorf("%s: %v", payload, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", payload, diff)
		}
	}
}

func TestParseWorkNamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	deep := `{"x":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`
	for name, c := range map[string]struct{ payload, field string }{
		"not JSON":           {`{"action":`, ""},
		"two documents":      {`{}{}`, ""},
		"a list":             {`[]`, ""},
		"null":               {`null`, ""},
		"deep":               {deep, ""},
		"NUL":                {`{"x":"a\u0000b"}`, ""},
		"NUL in a name":      {`{"a\u0000b":1}`, ""},
		"broken UTF-8":       {"{\"x\":\"\xff\"}", ""},
		"action a number":    {`{"action":1}`, "action"},
		"action unknown":     {`{"action":"fly"}`, "action"},
		"action null":        {`{"action":null}`, "action"},
		"unknown field":      {`{"action":"exec","command":["a"],"cmd":1}`, "cmd"},
		"argument too long":  {`{"action":"exec","command":["a","` + strings.Repeat("x", 200_000) + `"]}`, "command[1]"},
		"arguments too long": {`{"action":"run","language":"sh","code":"x","args":["` + strings.Repeat(strings.Repeat("x", 100_000)+`","`, 9) + `"]}`, "command"},
		"variable too long":  {`{"action":"exec","command":["a"],"env":{"A":"` + strings.Repeat("x", 200_000) + `"}}`, "env"},
		"driver no word":     {`{"action":"exec","command":["a"],"driver":"../x"}`, "driver"},
		"another's field":    {`{"action":"exec","command":["a"],"code":"x"}`, "code"},
		"field in capitals":  {`{"action":"exec","command":["a"],"Command":["b"]}`, "Command"},
		"command a string":   {`{"action":"exec","command":"ls"}`, "command"},
		"command empty":      {`{"action":"exec","command":[]}`, "command"},
		"command of nothing": {`{"action":"exec","command":[""]}`, "command"},
		"no command":         {`{"action":"exec"}`, "command"},
		"no language":        {`{"action":"run","code":"x"}`, "language"},
		"no code":            {`{"action":"run","language":"x"}`, "code"},
		"no files":           {`{"action":"write files"}`, "files"},
		"files a list":       {`{"action":"write files","files":["a"]}`, "files"},
		"file outside":       {`{"action":"write files","files":{"../a":""}}`, "files"},
		"path absolute":      {`{"action":"create file","path":"/etc/passwd"}`, "path"},
		"env name":           {`{"action":"exec","command":["a"],"env":{"A=B":""}}`, "env"},
		"env no name":        {`{"action":"exec","command":["a"],"env":{"":""}}`, "env"},
		"too large":          {`{"x":"` + strings.Repeat("x", job.MaxPayloadBytes) + `"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := job.ParseWork(json.RawMessage(c.payload))
			var f *fault.Error
			if !errors.As(err, &f) || f.Kind != fault.Invalid || f.Field != c.field {
				t.Fatalf("got %v (%+v), want the field %q", err, f, c.field)
			}
			if strings.Contains(f.Message, "[]string") || strings.Contains(f.Message, "map[") {
				t.Errorf("%q speaks Go", f.Message)
			}
		})
	}
}

func TestCheckPathLetsOnlyPlainPathsThrough(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"a", "a/b", "..a", "a..b/c", ".hidden", "é/ü", "a b"} {
		if err := job.CheckPath("path", p); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
	for _, p := range []string{"", ".", "..", "/", "/a", "a/", "a//b", "./a", "a/./b", "a/../b", "../a", "a\\b", "a\x00", "\xff", strings.Repeat("a/", 600) + "a", strings.Repeat("x", 256)} {
		if err := job.CheckPath("path", p); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q passed", p)
		}
	}
}

func FuzzParseWork(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `{"action":"exec","command":["a"],"env":{"A":"b"}}`, `{"action":"run","language":"go","code":"x"}`,
		`{"action":"write files","files":{"a/b":"c"}}`, `{"action":"create file","path":"x"}`, `{"ACTION":1,"action":"Run"}`, "{\"a\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		w, err := job.ParseWork(payload)
		if err != nil {
			demandFault(t, err)
			return
		}
		for name := range w.Files {
			if !filepath.IsLocal(name) {
				t.Fatalf("the file %q is outside the workspace", name)
			}
		}
		switch w.Action {
		case job.CreateFile, job.WriteFiles:
			if len(w.Files) == 0 {
				t.Fatal("no file to write")
			}
		case job.Exec:
			if len(w.Command) == 0 {
				t.Fatal("no command to run")
			}
		case job.Run:
			if w.Language == "" || w.Code == "" {
				t.Fatal("no code to run")
			}
		default:
			t.Fatalf("action %q", w.Action)
		}
	})
}
