package corpustest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// runOrder has a worker do an order, and returns what it printed too.
func runOrder(t *testing.T, s *stand, o run.Order) (res run.Result, stdout, stderr string) {
	t.Helper()
	runner := <-s.runner
	defer func() { s.runner <- runner }()
	o.Owner, o.Timeout = "test", programTimeout
	p := program{Name: o.ID, Language: o.Language, Code: o.Code, Files: o.Files, Args: o.Args, Stdin: o.Stdin, ReadOnly: o.ReadOnly, Artifacts: o.Artifacts}
	out, err := throughWorker(runner, p, func(r run.Result) error { res = r; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return res, string(out.Stdout), string(out.Stderr)
}

// A program does what it can to have something else than its own files handed
// out as its artifacts.
func TestHostileArtifacts(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	const code = `
import os, socket, subprocess, sys
os.chdir(os.environ["AUREA_ARTIFACTS"])
open("good.txt", "w").write("kept")
os.makedirs("sub/deep")
open("sub/deep/bin", "wb").write(bytes(range(256)))
os.symlink("/etc/passwd", "link")
os.symlink("/proc/self/environ", "procfs")
os.symlink("/", "rootdir")
os.symlink("link2", "link1"); os.symlink("link1", "link2")
os.mkfifo("fifo")
s = socket.socket(socket.AF_UNIX); s.bind("socket")
open("large.bin", "wb").write(b"x" * (2 << 20))
open(b"bad\xffname", "w").write("x")
open("new\nline", "w").write("x")
open("back\\slash", "w").write("x")
open("locked", "w").write("read all the same"); os.chmod("locked", 0)
os.chmod("sub", 0)
# It goes on for as long as somebody looks: what it writes is cut, or padded.
subprocess.Popen([sys.executable, "-c", "while True:\n f = open('changing', 'w'); f.write('y' * 100000); f.truncate(10); f.close()"], start_new_session=True)
while not os.path.exists("changing"): pass
print("left")
`
	res, stdout, stderr := runOrder(t, s, run.Order{ID: "hostile", Language: "python", Code: code, ReadOnly: true, Artifacts: true})
	if res.Verdict != sandbox.OK || stdout != "left\n" {
		t.Fatalf("%s: %q %q", res.Verdict, stdout, stderr)
	}
	taken := maps.Clone(res.Artifacts)
	delete(taken, "changing") // whether it was there at that moment is not said
	if d := cmp.Diff([]string{"good.txt", "locked", "sub/deep/bin"}, slices.Sorted(maps.Keys(taken))); d != "" {
		t.Error(d)
	}
	if string(taken["good.txt"].Data) != "kept" || len(taken["sub/deep/bin"].Data) != 256 {
		t.Errorf("%v", taken)
	}
	slices.Sort(res.Skipped)
	if d := cmp.Diff([]string{
		`"back\\slash": the name has characters that are not taken`, `"bad\xffname": the name is not UTF-8`,
		`"new\nline": the name has characters that are not taken`, "fifo: a FIFO", "large.bin: larger than 1048576 bytes",
		"link1: a symbolic link", "link2: a symbolic link", "link: a symbolic link", "procfs: a symbolic link", "rootdir: a symbolic link",
	}, res.Skipped); d != "" {
		t.Error(d)
	}
}

// Giants and crowds are left, and said to be.
func TestArtifactGiants(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for name, tc := range map[string]struct{ code, said string }{
		"sparse": {`f = open("giant", "wb"); f.truncate(1 << 40)`, "giant: larger than 1048576 bytes"},
		"crowd":  {`[open(f"f{i}", "w").close() for i in range(10050)]`, "the rest: the folder holds more than the 10000 entries that are looked at"},
	} {
		code := "import os\nos.chdir(os.environ['AUREA_ARTIFACTS'])\ntry:\n    " + tc.code + "\nexcept OSError as e:\n    print(e)\n"
		res, stdout, stderr := runOrder(t, s, run.Order{ID: name, Language: "python", Code: code, ReadOnly: true, Artifacts: true})
		if res.Verdict != sandbox.OK || len(res.Artifacts) > 100 || len(res.Skipped) > 103 {
			t.Errorf("%s: %s %q %q, %d artifacts, %d skipped", name, res.Verdict, stdout, stderr, len(res.Artifacts), len(res.Skipped))
		}
		if !strings.Contains(strings.Join(res.Skipped, "\n")+stdout, tc.said) {
			t.Errorf("%s: %q is not said: %q", name, tc.said, res.Skipped)
		}
	}
}

// The folder itself can become a link where the workspace can be written to. It
// leads nowhere outside of the sandbox, whatever is taken through it.
func TestArtifactFolderAsLink(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	const code = "import os\nos.rmdir('artifacts')\nos.symlink('/etc', 'artifacts')\nprint(len(os.listdir('artifacts')) > 5)\n"
	res, stdout, stderr := runOrder(t, s, run.Order{ID: "link", Language: "python", Code: code, Artifacts: true})
	if res.Verdict != sandbox.OK || stdout != "True\n" {
		t.Fatalf("%s: %q %q", res.Verdict, stdout, stderr)
	}
	if passwd, ok := res.Artifacts["passwd"]; ok && !strings.Contains(string(passwd.Data), "sandbox:x:1000:1000") {
		t.Errorf("this is not the sandbox's: %q", passwd.Data)
	}
}

// A compile step has a verdict of its own: the program is never started.
func TestCompileStep(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	res, stdout, stderr := runOrder(t, s, run.Order{ID: "good", Language: "c", Code: samples["c"], Args: []string{"$(one)"}, Stdin: "two"})
	if res.Step != run.StepRun || res.ExitCode != 7 || stdout != says("c") || stderr != "" {
		t.Errorf("%s %d: %q %q", res.Step, res.ExitCode, stdout, stderr)
	}
	res, stdout, stderr = runOrder(t, s, run.Order{ID: "bad", Language: "c", Code: "int main(void) { return missing; }\n"})
	if res.Step != run.StepCompile || res.Verdict != sandbox.Failed || res.ExitCode == 0 || stdout != "" || !strings.Contains(stderr, "missing") {
		t.Errorf("%s %s %d: %q %q", res.Step, res.Verdict, res.ExitCode, stdout, stderr)
	}
}
