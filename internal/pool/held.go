package pool

import (
	"bytes"
	"context"
	"maps"
	"os"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// tarEnd is how many zeros end a tar.
const tarEnd = 1024

// execID is the id of the process that waits, the same that a run's has.
const execID = "run"

// Held is a sandbox that waits, or has waited.
type Held struct {
	Sandbox *sandbox.Sandbox
	// Used is what it had used when it was ready.
	Used sandbox.Usage

	exec    *sandbox.Exec // nil where no interpreter waits
	image   string
	digest  string
	memory  int64
	since   time.Time
	release func()
}

// healthy reports whether nothing of it has ended.
func (h *Held) healthy() bool {
	if h.Sandbox.Dead() {
		return false
	}
	if h.exec == nil {
		return true
	}
	select {
	case <-h.exec.Done():
		return false
	default:
		return true
	}
}

// Release gives back the memory that was taken for waiting: who has claimed the
// sandbox has taken its own.
func (h *Held) Release() { h.release() }

// Waits reports whether an interpreter waits in it.
func (h *Held) Waits() bool { return h.exec != nil }

// Begin lets the interpreter go: it runs the program with these arguments and
// this environment beyond the sandbox's. What is returned must be written to the
// process's input before the program's own.
func (h *Held) Begin(args []string, env map[string]string, opts sandbox.ExecOptions) (*sandbox.Exec, []byte, error) {
	environ, known := h.Sandbox.Environ(sandbox.ExecSpec{Env: env})
	if !known {
		return nil, nil, fault.New(fault.Internal, "the driver cannot say which environment a program has")
	}
	head, err := handOver(args, environ)
	if err != nil {
		return nil, nil, err
	}
	if err := h.exec.Begin(opts); err != nil {
		return nil, nil, err
	}
	return h.exec, head, nil
}

// make makes a sandbox and, where the language has a launcher, starts its
// interpreter and waits until that waits.
func (p *Pool) make(ctx context.Context, k *class, image string) (*Held, error) {
	id, err := sandbox.NewID()
	if err != nil {
		return nil, err
	}
	box, err := sandbox.Open(ctx, sandbox.Options{
		Driver: p.config.Driver, OutputCap: p.config.OutputCap, Logger: p.config.Logger, Brake: p.config.Brake,
		Spec: sandbox.Spec{ID: id, Image: image, Limits: p.config.Limits, Labels: p.config.Labels, Background: true},
	})
	if err != nil {
		return nil, err
	}
	h := &Held{Sandbox: box, image: image, memory: p.config.Limits.Memory}
	_, h.digest = box.Image()
	if p.config.Folder != "" && k.launcher != nil {
		// An empty archive makes the folder that it is unpacked in.
		err = box.Put(ctx, p.config.Folder, bytes.NewReader(make([]byte, tarEnd)))
	}
	if _, known := box.Environ(sandbox.ExecSpec{}); err == nil && k.launcher != nil && known {
		h.exec, err = p.launch(ctx, box, k.Language, *k.launcher)
	} else if err == nil && k.Language.Compile == nil {
		err = p.rehearse(ctx, box, k.Language)
	}
	if err == nil {
		h.Used, err = box.Usage(ctx)
	}
	if err != nil {
		if end := box.Close(ctx); end != nil {
			p.config.Logger.Error("could not destroy a sandbox that was to wait", "sandbox", box.ID(), "error", end)
		}
		return nil, err
	}
	h.since = time.Now()
	return h, nil
}

// rehearse runs an empty program where no interpreter can wait: the first command
// of a sandbox takes twice as long as the next, because its kernel makes and
// reads then what it keeps. How the program ends says nothing.
func (p *Pool) rehearse(ctx context.Context, box *sandbox.Sandbox, lang language.Language) error {
	exec, err := box.Exec(ctx, sandbox.ExecSpec{ID: "rehearsal", Command: lang.RunCommand(os.DevNull, "", nil)},
		sandbox.ExecOptions{Timeout: readyTimeout})
	if err != nil {
		return err
	}
	_, err = exec.Wait(ctx)
	return err
}

// launch starts an interpreter that waits for its program.
func (p *Pool) launch(ctx context.Context, box *sandbox.Sandbox, lang language.Language, l launcher) (*sandbox.Exec, error) {
	files, err := l.archive()
	if err != nil {
		return nil, err
	}
	put := box.Put
	if l.locked {
		put = box.PutLocked
	}
	if err := put(ctx, launcherPlace, files); err != nil {
		return nil, err
	}
	env := maps.Clone(l.env)
	maps.Copy(env, p.config.Env)
	exec, err := box.Exec(ctx, sandbox.ExecSpec{ID: execID, Command: lang.RunCommand(lang.File, "", nil), Env: env, Stdin: true},
		sandbox.ExecOptions{Ready: []byte(mark)})
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(readyTimeout)
	defer timer.Stop()
	select {
	case <-exec.Ready():
		return exec, nil
	case <-exec.Done():
		res, _ := exec.Wait(ctx)
		return nil, fault.New(fault.Unavailable, "the interpreter of %s ended before it was ready: %s, exit code %d", lang.Name, res.Verdict, res.Exit.Code)
	case <-timer.C:
		return nil, fault.New(fault.Unavailable, "the interpreter of %s was not ready in %s", lang.Name, readyTimeout)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
