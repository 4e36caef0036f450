package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/build"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/fault"
)

// site is a worker's end that builds by a function.
type site struct {
	dispatchtest.Canceller
	do func(ctx context.Context, order build.Order, upload io.Reader, tell func(build.Step) error) (build.Result, error)
}

func (s site) Build(ctx context.Context, order build.Order, upload io.Reader, tell func(build.Step) error) (build.Result, error) {
	return s.do(ctx, order, upload, tell)
}

func builderOver(t *testing.T, rc dispatch.Receiver) dispatch.Builder {
	t.Helper()
	b, ok := carried(t, rc).(dispatch.Builder)
	if !ok {
		t.Fatal("the wire carries no builds")
	}
	return b
}

func TestABuildCrosses(t *testing.T) {
	t.Parallel()
	order := build.Order{Tag: "x:1", Dockerfile: "a/b", Args: map[string]string{"BASE": "c"}, Fresh: true, Uploaded: true}
	upload := strings.Repeat("0123456789abcdef", 1<<16)
	steps := []build.Step{{Doing: "build", Line: 1, Number: 1, Of: 2, Text: "FROM c"}, {Doing: "import", Done: 5, Total: 6}}
	result := build.Result{Image: "x:1", Digest: "sha256:00", Size: 7}
	b := builderOver(t, site{do: func(_ context.Context, got build.Order, r io.Reader, tell func(build.Step) error) (build.Result, error) {
		body, err := io.ReadAll(r)
		if err != nil || string(body) != upload || !reflect.DeepEqual(got, order) {
			t.Errorf("got %+v, %d bytes, %v", got, len(body), err)
		}
		for _, s := range steps {
			if err := tell(s); err != nil {
				t.Error(err)
			}
		}
		return result, nil
	}})
	var told []build.Step
	got, err := b.Build(t.Context(), order, strings.NewReader(upload), func(s build.Step) error {
		told = append(told, s)
		return nil
	})
	if err != nil || got != result || !reflect.DeepEqual(told, steps) {
		t.Errorf("got %+v, %v, %v", got, told, err)
	}
}

func TestWhatABuildFailsOfCrosses(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]int{"at once": 0, "after a step": 1} {
		b := builderOver(t, site{do: func(_ context.Context, _ build.Order, _ io.Reader, tell func(build.Step) error) (build.Result, error) {
			for range after {
				if err := tell(build.Step{Doing: "build"}); err != nil {
					t.Error(err)
				}
			}
			return build.Result{}, fault.New(fault.Invalid, "Dockerfile line 3: no").WithCode("build_failed")
		}})
		_, err := b.Build(t.Context(), build.Order{}, nil, func(build.Step) error { return nil })
		if !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != "build_failed" || err.Error() != "Dockerfile line 3: no" {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := builderOver(t, dispatchtest.Cancels(nil)).Build(t.Context(), build.Order{}, nil, nil)
	if fault.CodeOf(err) != "no_builder" {
		t.Errorf("a worker that builds nothing: %v", err)
	}
	if _, err := builderOver(t, dispatchtest.Cancels(nil)).Build(t.Context(), build.Order{Name: "../x"}, nil, nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("an order out of bounds: %v", err)
	}
}

// Hanging up, for whatever reason, ends the build on the worker.
func TestABuildEndsWithItsCall(t *testing.T) {
	t.Parallel()
	stopped := make(chan error, 1)
	b := builderOver(t, site{do: func(ctx context.Context, _ build.Order, _ io.Reader, tell func(build.Step) error) (build.Result, error) {
		_ = tell(build.Step{Doing: "build"})
		<-ctx.Done()
		stopped <- ctx.Err()
		return build.Result{}, ctx.Err()
	}})
	enough := errors.New("enough")
	if _, err := b.Build(t.Context(), build.Order{}, nil, func(build.Step) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("not listened to: %v", err)
	}
	<-stopped
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, err := b.Build(ctx, build.Order{}, nil, func(build.Step) error { cancel(enough); return nil }); !errors.Is(err, enough) {
		t.Errorf("given up: %v", err)
	}
	<-stopped
	// A context that breaks off on the way does not pass for a whole one.
	broken := builderOver(t, site{do: func(_ context.Context, _ build.Order, r io.Reader, _ func(build.Step) error) (build.Result, error) {
		_, err := io.Copy(io.Discard, r)
		stopped <- err
		return build.Result{}, err
	}})
	_, err := broken.Build(t.Context(), build.Order{Uploaded: true, Tag: "x"}, io.MultiReader(strings.NewReader("x"), failing{enough}), nil)
	if worker := <-stopped; err == nil || worker == nil {
		t.Errorf("got %v here and %v there", err, worker)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// What a worker says of a build is hostile.
func FuzzBuildLines(f *testing.F) {
	f.Add([]byte(`{"step":{"doing":"build","line":1}}` + "\n" + `{"result":{"image":"x","digest":"y","size":-1}}` + "\n"))
	f.Add([]byte(`{"problem":{"kind":"invalid","detail":"\u0007"}}` + "\n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		r, err := readBuild(t.Context(), bytes.NewReader(answer), func(s build.Step) error {
			if strings.ContainsAny(s.Text+s.Doing, "\x00\x07\x1b\n") {
				t.Errorf("a step of %+v", s)
			}
			return nil
		})
		var kind *fault.Error
		if err == nil && r.Size < 0 || err != nil && !errors.As(err, &kind) {
			t.Errorf("got %+v, %v", r, err)
		}
	})
}

func FuzzBuildOrder(f *testing.F) {
	f.Add([]byte(`{"name":"sandbox"}` + "\n"))
	f.Add([]byte(`{"uploaded":true,"tag":"x"}` + "\narchive"))
	f.Fuzz(func(t *testing.T, body []byte) {
		order, _, err := readBuildOrder(bytes.NewReader(body))
		if err == nil && order.Check() != nil {
			t.Errorf("took %+v", order)
		}
	})
}
