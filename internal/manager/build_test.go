package manager

import (
	"context"
	"io"
	"testing"

	"github.com/aurea-dev/aurea/internal/build"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
)

// site is a worker's end that says which of them built.
type site struct {
	dispatchtest.Canceller
	name string
}

func (s site) Build(_ context.Context, o build.Order, _ io.Reader, tell func(build.Step) error) (build.Result, error) {
	return build.Result{Image: o.Tag + "@" + s.name}, tell(build.Step{Doing: "build"})
}

func TestAnImageIsBuiltByAWorkerThatIsThere(t *testing.T) {
	t.Parallel()
	m := started(t)
	heard := 0
	tell := func(build.Step) error { heard++; return nil }
	if _, err := m.BuildImage(local(), "", build.Order{}, nil, tell); fault.CodeOf(err) != "no_worker" {
		t.Errorf("without a worker: %v", err)
	}
	for name, rc := range map[string]dispatch.Receiver{"a": dispatchtest.Cancels(nil), "b": site{name: "b"}, "c": site{name: "c"}} {
		s := &session{id: "session-" + name, worker: job.Worker{ID: name}}
		m.sessions.add(s)
		s.open(t.Context(), rc)
	}
	for asked, want := range map[string]string{"": "x@b", "b": "x@b", "c": "x@c"} {
		if r, err := m.BuildImage(local(), asked, build.Order{Tag: "x"}, nil, tell); err != nil || r.Image != want {
			t.Errorf("asked %q: %+v, %v", asked, r, err)
		}
	}
	for _, asked := range []string{"a", "nobody"} {
		if _, err := m.BuildImage(local(), asked, build.Order{}, nil, tell); fault.CodeOf(err) != "no_worker" {
			t.Errorf("asked %s: %v", asked, err)
		}
	}
	if _, err := m.BuildImage(local(), "", build.Order{Name: "../x"}, nil, tell); !fault.Is(err, fault.Invalid) {
		t.Errorf("an order out of bounds: %v", err)
	}
	if _, err := m.BuildImage(t.Context(), "", build.Order{}, nil, tell); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("nobody asks: %v", err)
	}
	if heard != 3 {
		t.Errorf("heard %d steps", heard)
	}
}
