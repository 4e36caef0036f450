package worker

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/pool"
	oneshot "github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

const (
	// artifactsName is the folder in the workspace that a program leaves its
	// artifacts in; it can be written to also where nothing else can.
	artifactsName = "artifacts"
	artifactsPath = workspacePath + "/" + artifactsName
	// artifactsVariable tells a program of it.
	artifactsVariable = "AUREA_ARTIFACTS"
	// compiledPath is what a compile step makes.
	compiledPath = "/tmp/main"
	// maxRunOutput is how much of each stream is kept unless the order says
	// otherwise: it is held in memory.
	maxRunOutput = 16 << 20
)

// shot is one run on its way through the worker.
type shot struct {
	*run
	order  oneshot.Order
	lang   language.Language
	image  string
	limits sandbox.Limits
	out    *capture
	held   *pool.Held // where it came from the pool
	// ctx is the run's own, stored because it outlives the call that began it
	// where it is kept, and because commands from elsewhere end it.
	ctx  context.Context
	stop context.CancelCauseFunc
	gone chan struct{} // closed when nothing of it runs any more

	// Set before out ends, and not changed after.
	result oneshot.Result
	err    error

	since time.Time // when it ended
	size  int64     // of what is kept of it
}

// newShot finds out what an order means here. Nothing is made yet.
func (r *run) newShot(o oneshot.Order) (*shot, error) {
	if err := r.demandDriver(o.Driver); err != nil {
		return nil, err
	}
	lang, err := r.Languages.Find(o.Language)
	if err != nil {
		return nil, err
	}
	for _, taken := range []string{lang.File, artifactsName} {
		if _, clash := o.Files[taken]; clash {
			return nil, fault.Field("files", "%s is taken; give this file another name", taken).WithCode("reserved_name")
		}
	}
	s := &shot{run: r, order: o, lang: lang, out: newCapture(), gone: make(chan struct{})}
	s.image = cmp.Or(o.Image, r.imageFor(lang))
	s.limits = overLimits(r.Limits, o.Limits)
	if r.Memory > 0 && s.limits.Memory > r.Memory {
		return nil, fault.Field("memory_limit", "%d bytes are more than this worker has for all its sandboxes, which is %d", s.limits.Memory, r.Memory).WithCode("limit_too_large")
	}
	s.order.OutputCap = cmp.Or(o.OutputCap, min(cmp.Or(r.OutputCap, maxRunOutput), maxRunOutput))
	s.ctx, s.stop = context.WithCancelCause(r.life)
	return s, nil
}

// overLimits lays what is asked for over what the worker gives by itself. How
// much may be asked for is the manager's to say.
func overLimits(own, asked sandbox.Limits) sandbox.Limits {
	return sandbox.Limits{
		MilliCPU: cmp.Or(asked.MilliCPU, own.MilliCPU), Memory: cmp.Or(asked.Memory, own.Memory),
		Processes: cmp.Or(asked.Processes, own.Processes), Disk: cmp.Or(asked.Disk, own.Disk),
		OpenFiles: cmp.Or(asked.OpenFiles, own.OpenFiles), CPUTime: cmp.Or(asked.CPUTime, own.CPUTime),
	}
}

// env is what the program's environment has beyond that of its sandbox.
func (s *shot) env() map[string]string {
	env := maps.Clone(s.order.Env)
	if env == nil {
		env = map[string]string{}
	}
	env[artifactsVariable] = artifactsPath
	return env
}

// archive packs the code and the inputs, with the folder for artifacts, which is
// the program's own, unless the sandbox has it.
func (s *shot) archive(hasFolder bool) (*bytes.Reader, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	put := func(name, text string) error {
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text)), Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			return fmt.Errorf("pack %s: %w", clip(name), err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			return fmt.Errorf("pack %s: %w", clip(name), err)
		}
		return nil
	}
	if err := put(path.Base(s.lang.File), s.order.Code); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(s.order.Files)) {
		if err := put(name, s.order.Files[name]); err != nil {
			return nil, err
		}
	}
	if !hasFolder {
		if err := w.WriteHeader(&tar.Header{Name: artifactsName + "/", Typeflag: tar.TypeDir, Mode: 0o755, Uid: 1, Gid: 1}); err != nil {
			return nil, fmt.Errorf("pack files: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack files: %w", err)
	}
	return bytes.NewReader(b.Bytes()), nil
}
