package engine_test

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/build"
	"github.com/aurea-dev/aurea/internal/driver/docker/dockertest"
	"github.com/aurea-dev/aurea/internal/fault"
)

func silent(build.Step) error { return nil }

func TestTheShippedDockerfilesBuild(t *testing.T) {
	e, store := builder(t, host(t), "")
	for _, tc := range []struct {
		order     build.Order
		tag, user string
	}{
		{build.Order{Args: map[string]string{"BASE": dockertest.WorkerBase}}, "aurea-sandbox:latest", "sandbox"},
		// The tools come from a registry, which tests do not ask.
		{build.Order{Name: "node-expo", Args: map[string]string{"BASE": dockertest.WorkerBase, "TOOLS": ""}}, "node-expo:latest", "appuser"},
	} {
		var steps []build.Step
		r, err := e.Build(t.Context(), tc.order, nil, func(s build.Step) error {
			steps = append(steps, s)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		known, err := store.Find(tc.tag)
		if err != nil {
			t.Fatal(err)
		}
		if r.Image != tc.tag || r.Digest != known.Digest || known.User != tc.user || r.Size < 1<<20 {
			t.Errorf("got %+v and %+v", r, known)
		}
		checkSteps(t, steps)
	}
}

// checkSteps looks whether all instructions were told of, each with its line.
func checkSteps(t *testing.T, steps []build.Step) {
	t.Helper()
	var last build.Step
	for _, s := range steps {
		if s.Doing != "build" {
			continue
		}
		if s.Number < last.Number || s.Line < last.Line {
			t.Errorf("step %+v came after %+v", s, last)
		}
		last = s
	}
	if last.Number == 0 || last.Number != last.Of || last.Line == 0 {
		t.Errorf("the last step was %+v of %d", last, len(steps))
	}
}

func TestWhatWasUploadedBuilds(t *testing.T) {
	e, store := builder(t, host(t), "")
	upload := archive(t,
		file("docker/Build", "ARG WHO\nFROM "+dockertest.WorkerBase+"\nARG WHO\n\nCOPY data/ /data/\nRUN test \"$(cat /data/greeting) $WHO\" = 'hello world'\n"),
		entry{Header: tar.Header{Name: "data/", Typeflag: tar.TypeDir}},
		file("data/greeting", "hello"),
		entry{Header: tar.Header{Name: "data/again", Typeflag: tar.TypeSymlink, Linkname: "greeting"}},
	)
	r, err := e.Build(t.Context(), build.Order{Uploaded: true, Tag: "mine:1", Dockerfile: "docker/Build", Args: map[string]string{"WHO": "world"}}, upload, silent)
	if err != nil {
		t.Fatal(err)
	}
	if known, err := store.Find("mine:1"); err != nil || known.Digest != r.Digest {
		t.Errorf("got %+v, %v", known, err)
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	address := host(t)
	for name, tc := range map[string]struct{ dockerfile, want string }{
		"a command that fails": {
			"# a comment\nFROM " + dockertest.WorkerBase + "\n\nRUN echo one && \\\n    # in between\n    echo two\nRUN echo the reason >&2; \\\n  exit 3\n",
			"Dockerfile line 7 (RUN echo the reason >&2; \\): the command ended with code 3; it said last: the reason",
		},
		"no such instruction":   {"FROM " + dockertest.WorkerBase + "\n\nRUNN true\n", "Dockerfile line 3: unknown instruction: RUNN"},
		"no such file":          {"FROM " + dockertest.WorkerBase + "\nCOPY missing /\n", "Dockerfile line 2 (COPY missing /): "},
		"nothing in it":         {"# nothing\n", "Dockerfile"},
		"a base that is no one": {"\n\nFROM 127.0.0.1:1/nowhere\n", "Dockerfile line 3 (FROM 127.0.0.1:1/nowhere): "},
	} {
		t.Run(name, func(t *testing.T) {
			e, store := builder(t, address, "")
			_, err := e.Build(t.Context(), build.Order{Uploaded: true, Tag: "mine"}, archive(t, file("Dockerfile", tc.dockerfile)), silent)
			if !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != "build_failed" || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if list, err := store.List(); err != nil || len(list) > 0 {
				t.Errorf("kept %v, %v", list, err)
			}
		})
	}
}

func TestABuildEndsWithItsCaller(t *testing.T) {
	e, _ := builder(t, host(t), "")
	hung := archive(t, file("Dockerfile", "FROM "+dockertest.WorkerBase+"\nRUN echo started; sleep 600\n"))
	gone := errors.New("nobody listens")
	for name, end := range map[string]func(cancel func(error)) error{
		"its context ends": func(cancel func(error)) error { cancel(gone); return nil },
		"it is not heard":  func(func(error)) error { return gone },
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := e.Build(ctx, build.Order{Uploaded: true, Tag: "mine"}, strings.NewReader(hung.String()), func(s build.Step) error {
			if s.Text != "started" {
				return nil
			}
			return end(cancel)
		})
		cancel(nil)
		if !errors.Is(err, gone) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOneBuildAtATime(t *testing.T) {
	e, _ := builder(t, host(t), "")
	enough := errors.New("seen enough")
	_, err := e.Build(t.Context(), build.Order{Args: map[string]string{"BASE": dockertest.WorkerBase}}, nil, func(build.Step) error {
		if _, err := e.Build(t.Context(), build.Order{}, nil, silent); !fault.Is(err, fault.Exhausted) {
			t.Errorf("a second build at once: %v", err)
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
}

func TestWithoutAnEngineTheRemedyIsNamed(t *testing.T) {
	t.Parallel()
	e, _ := builder(t, "unix://"+filepath.Join(t.TempDir(), "none.sock"), "")
	_, err := e.Build(t.Context(), build.Order{}, nil, silent)
	if !fault.Is(err, fault.Unavailable) || fault.CodeOf(err) != "no_engine" || !strings.Contains(err.Error(), "aurea image import") {
		t.Errorf("got %v", err)
	}
}

func TestOnlyDockerfilesThatAreThere(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	outside := filepath.Join(t.TempDir(), "Dockerfile")
	for path, body := range map[string]string{outside: "FROM scratch\n", filepath.Join(folder, "mine", "Dockerfile"): "FROM scratch\n"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(folder, "linked")); err != nil {
		t.Fatal(err)
	}
	e, _ := builder(t, "unix:///nowhere", folder)
	if got := strings.Join(e.Names(), " "); got != "mine node-expo sandbox" {
		t.Errorf("there are %s", got)
	}
	for name, want := range map[string]fault.Kind{
		"nothing": fault.NotFound, "linked": fault.NotFound, "../mine": fault.Invalid, "..": fault.Invalid,
		"/etc": fault.Invalid, "mine/x": fault.Invalid, "Mine": fault.Invalid, "mine": fault.Unavailable,
	} {
		if _, err := e.Build(t.Context(), build.Order{Name: name}, nil, silent); !fault.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

// What comes from outside is refused before an engine is asked.
func TestHostileContexts(t *testing.T) {
	t.Parallel()
	recipe := file("Dockerfile", "FROM scratch\n")
	many := []entry{recipe}
	for range build.MaxEntries {
		many = append(many, file("x", ""))
	}
	for name, tc := range map[string]struct {
		upload io.Reader
		want   fault.Kind
	}{
		"a name that climbs":       {archive(t, recipe, file("../x", "x")), fault.Invalid},
		"a name from the root":     {archive(t, recipe, file("/etc/x", "x")), fault.Invalid},
		"a link that climbs":       {archive(t, recipe, entry{Header: tar.Header{Name: "a/b", Typeflag: tar.TypeSymlink, Linkname: "../../x"}}), fault.Invalid},
		"a link from the root":     {archive(t, recipe, entry{Header: tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "/etc/shadow"}}), fault.Invalid},
		"a hard link":              {archive(t, recipe, entry{Header: tar.Header{Name: "a", Typeflag: tar.TypeLink, Linkname: "Dockerfile"}}), fault.Invalid},
		"a device":                 {archive(t, recipe, entry{Header: tar.Header{Name: "a", Typeflag: tar.TypeBlock}}), fault.Invalid},
		"a pipe":                   {archive(t, recipe, entry{Header: tar.Header{Name: "a", Typeflag: tar.TypeFifo}}), fault.Invalid},
		"too many entries":         {archive(t, many...), fault.TooLarge},
		"too many bytes":           {archive(t, recipe, file("x", strings.Repeat("x", build.MaxContext))), fault.TooLarge},
		"a Dockerfile without end": {archive(t, file("Dockerfile", strings.Repeat("# x\n", 1<<19))), fault.TooLarge},
		"no Dockerfile":            {archive(t, file("Dockerfile.txt", "FROM scratch\n")), fault.NotFound},
		"a link as Dockerfile":     {archive(t, file("x", "FROM scratch\n"), entry{Header: tar.Header{Name: "Dockerfile", Typeflag: tar.TypeSymlink, Linkname: "x"}}), fault.NotFound},
		"no archive":               {strings.NewReader("FROM scratch\n"), fault.Invalid},
		"nothing":                  {strings.NewReader(""), fault.NotFound},
		"half an archive":          {io.LimitReader(archive(t, file("x", strings.Repeat("x", 4096)), recipe), 2000), fault.Invalid},
	} {
		e, _ := builder(t, "unix:///nowhere", "")
		if _, err := e.Build(t.Context(), build.Order{Uploaded: true, Tag: "mine"}, tc.upload, silent); !fault.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

func FuzzContext(f *testing.F) {
	f.Add(archive(f, file("Dockerfile", "FROM scratch\n")).Bytes())
	f.Add(archive(f, file("../x", ""), entry{Header: tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}}).Bytes())
	f.Fuzz(func(t *testing.T, upload []byte) {
		e, _ := builder(t, "unix:///nowhere", "")
		_, err := e.Build(t.Context(), build.Order{Uploaded: true, Tag: "mine"}, strings.NewReader(string(upload)), silent)
		switch fault.KindOf(err) {
		case fault.Invalid, fault.NotFound, fault.TooLarge, fault.Unavailable:
		default:
			t.Errorf("got %v", err)
		}
	})
}
