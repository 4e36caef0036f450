package probe_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/driver/fake"
	"github.com/aurea-dev/aurea/internal/probe"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// TestGvisorStopsEverything is what every worker does at its start.
func TestGvisorStopsEverything(t *testing.T) {
	t.Parallel()
	d := open(t)
	r := probe.Run(t.Context(), d, probe.Options{Folder: t.TempDir()})
	for _, a := range r.Attempts {
		t.Logf("%-32s %v %s", a.Name, a.Stopped, a.Detail)
	}
	if why := r.Degraded(); why != "" {
		t.Error(why)
	}
	if len(r.Attempts) < 100 {
		t.Errorf("only %d attempts", len(r.Attempts))
	}
	if left, err := d.List(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// holed is a driver with a hole: the canary of the host is found inside, and
// limits are promised that nobody keeps.
type holed struct {
	sandbox.Driver
	canary bool
	limits bool
}

func (h holed) Capabilities() sandbox.Capabilities {
	c := h.Driver.Capabilities()
	c.Memory = false
	c.Processes = h.limits
	return c
}

func (h holed) Create(ctx context.Context, s sandbox.Spec, report func(sandbox.Handle) error) (sandbox.Box, error) {
	promised := s.Limits
	s.Limits = sandbox.Limits{}
	b, err := h.Driver.Create(ctx, s, report)
	if err != nil {
		return nil, err
	}
	return holedBox{b, h, promised}, nil
}

type holedBox struct {
	sandbox.Box
	h        holed
	promised sandbox.Limits
}

func (b holedBox) Enforced() sandbox.Limits { return b.promised }

func (b holedBox) Exec(ctx context.Context, s sandbox.ExecSpec) (sandbox.Process, error) {
	args := map[string]string{}
	for _, arg := range s.Command {
		key, value, _ := strings.Cut(arg, "=")
		args[key] = value
	}
	if path := args["canary"]; path != "" && b.h.canary {
		if err := b.Put(ctx, filepath.Dir(path), oneFile(filepath.Base(path), args["mark"])); err != nil {
			return nil, err
		}
	}
	return b.Box.Exec(ctx, s)
}

func oneFile(name, content string) io.Reader {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))})
	_, _ = io.WriteString(w, content)
	_ = w.Close()
	return &b
}

// TestHolesAreFound shows that the probe is no formality.
func TestHolesAreFound(t *testing.T) {
	t.Parallel()
	d := open(t)
	for name, want := range map[string]struct {
		driver  sandbox.Driver
		through []string
	}{
		"a file of the host": {holed{Driver: d, canary: true}, []string{"file-host", "root-file-host"}},
		"a limit":            {holed{Driver: d, limits: true}, []string{"limit-processes"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := probe.Run(t.Context(), want.driver, probe.Options{Folder: t.TempDir()})
			var got []string
			for _, a := range r.Through() {
				got = append(got, a.Name)
			}
			if strings.Join(got, " ") != strings.Join(want.through, " ") || r.Err != nil {
				t.Errorf("through: %q, %v; want %q", got, r.Err, want.through)
			}
			if r.Degraded() == "" {
				t.Error("the driver would be served")
			}
		})
	}
}

// TestADriverThatDoesNotAnswerIsNotServed uses one that executes nothing, so
// that the probe gets no answer to any question.
func TestADriverThatDoesNotAnswerIsNotServed(t *testing.T) {
	t.Parallel()
	d, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := probe.Run(t.Context(), d, probe.Options{Folder: t.TempDir()})
	if r.Degraded() == "" {
		t.Errorf("it would be served: %+v", r)
	}
	if left, err := d.List(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
