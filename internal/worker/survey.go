package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Found is what a survey of an image came to.
type Found struct {
	Digest   string          // of the image, where its driver knows one
	Programs map[string]bool // those that it has
}

const (
	surveyTimeout = time.Minute
	surveyOutput  = 64 << 10
	// surveyAgain is how long a worker waits before it looks whether its default
	// image has become another, or whether one that could not be looked into can.
	surveyAgain = 30 * time.Second
)

var errSurvey = fault.New(fault.Unavailable, "looking into the image took too long")

// Survey looks into an image, in a sandbox of its own: which of the programs it
// has. What the image's own shell says of them is believed: an image that lies
// only deceives those who chose it.
func Survey(ctx context.Context, d sandbox.Driver, image string, limits sandbox.Limits, programs []string) (Found, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, surveyTimeout, errSurvey)
	defer cancel()
	id, err := sandbox.NewID()
	if err != nil {
		return Found{}, err
	}
	box, err := sandbox.Open(ctx, sandbox.Options{
		Driver: d, OutputCap: surveyOutput,
		Spec: sandbox.Spec{ID: id, Image: image, Limits: limits, Network: sandbox.NetworkNone, Labels: map[string]string{"survey": "languages"}},
	})
	if err != nil {
		return Found{}, fmt.Errorf("look into the image: %w", err)
	}
	found := Found{Programs: map[string]bool{}}
	_, found.Digest = box.Image()
	err = found.ask(ctx, box, programs)
	if cerr := box.Close(context.WithoutCancel(ctx)); err == nil {
		err = cerr
	}
	if err != nil {
		return Found{}, fmt.Errorf("look into the image: %w", err)
	}
	return found, nil
}

// ask asks the image's shell, or where it has none every program itself.
func (f *Found) ask(ctx context.Context, box *sandbox.Sandbox, programs []string) error {
	const script = `for p in "$@"; do if command -v "$p" >/dev/null 2>&1; then echo "$p"; fi; done`
	said, code, err := tell(ctx, box, slices.Concat([]string{"sh", "-c", script, "sh"}, programs))
	if err != nil {
		return err
	}
	if !missing(code) {
		for line := range strings.Lines(said) {
			if p := strings.TrimSuffix(line, "\n"); slices.Contains(programs, p) {
				f.Programs[p] = true
			}
		}
		return nil
	}
	for _, p := range programs {
		_, code, err := tell(ctx, box, []string{p, "--version"})
		if err != nil {
			return err
		}
		if !missing(code) {
			f.Programs[p] = true
		}
	}
	return nil
}

// missing reports whether a code is that of a program that could not be started.
func missing(code int) bool { return code == 127 || code == 126 }

// tell runs a command and returns what it said.
func tell(ctx context.Context, box *sandbox.Sandbox, command []string) (string, int, error) {
	id, err := sandbox.NewID()
	if err != nil {
		return "", 0, err
	}
	var said bytes.Buffer
	keep := func(_ context.Context, f sandbox.Frame) error {
		if f.Stream == sandbox.Stdout {
			said.Write(f.Data)
		}
		return nil
	}
	exec, err := box.Exec(ctx, sandbox.ExecSpec{ID: id, Command: command}, sandbox.ExecOptions{Timeout: surveyTimeout, Sink: sandbox.SinkFunc(keep)})
	if err != nil {
		return "", 0, err
	}
	res, err := exec.Wait(ctx)
	if err != nil {
		return "", 0, err
	}
	switch res.Verdict {
	case sandbox.OK, sandbox.Failed:
		return said.String(), res.Exit.Code, nil
	case sandbox.Signal, sandbox.Timeout, sandbox.OOM, sandbox.Killed, sandbox.Lost, sandbox.Limit:
	}
	return "", 0, fault.New(fault.Unavailable, "%s ended as %s: %s", command[0], res.Verdict, clip(res.Cause))
}

// surveys are what is known of the images that languages run in.
type surveys struct {
	mu     sync.Mutex
	images map[string]surveyed // by the name that was asked for
}

type surveyed struct {
	Found
	err error
}

// imageFor is the image that code of a language runs in where nobody names one.
func (r *run) imageFor(l language.Language) string { return cmp.Or(l.Image, r.Image, r.DefaultImage()) }

// survey looks into the images of the languages that are not known yet, and
// reports whether it has learned anything.
func (r *run) survey(ctx context.Context) (news bool) {
	if r.Survey == nil || r.degraded(r.Driver) != "" {
		return false
	}
	programs := map[string]map[string]bool{}
	for _, l := range r.Languages.All() {
		image := r.imageFor(l)
		if programs[image] == nil {
			programs[image] = map[string]bool{}
		}
		for _, p := range l.Programs() {
			programs[image][p] = true
		}
	}
	for image, wanted := range programs {
		had, known := r.surveys.of(image)
		if known && had.err == nil {
			continue
		}
		found, err := r.Survey(ctx, r.driver, image, r.Limits, slices.Sorted(maps.Keys(wanted)))
		if ctx.Err() != nil {
			return news
		}
		if err != nil {
			r.log.Warn("could not look which languages an image has", "image", image, "error", err)
		}
		news = news || !known || err == nil || had.err.Error() != err.Error()
		r.surveys.set(image, surveyed{found, err})
	}
	return news
}

func (s *surveys) of(image string) (surveyed, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, known := s.images[image]
	return found, known
}

func (s *surveys) set(image string, found surveyed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.images == nil {
		s.images = map[string]surveyed{}
	}
	s.images[image] = found
}

// seen forgets what is known of an image whose name stands for another now.
func (s *surveys) seen(image, digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, known := s.images[image]; known && digest != "" && found.Digest != "" && found.Digest != digest {
		delete(s.images, image)
	}
}

// surveyOn keeps what is known of the images up to date, and the manager with
// it.
func (r *run) surveyOn() {
	if r.Survey == nil {
		return
	}
	ticker := time.NewTicker(surveyAgain)
	defer ticker.Stop()
	for {
		select {
		case <-r.life.Done():
			return
		case <-ticker.C:
		}
		if r.survey(r.life) {
			wake(r.changed) // which tells the manager
		}
	}
}

// inactive is why code of a language cannot run in an image, or "".
func (r *run) inactive(l language.Language, image string) string {
	if why := r.degraded(r.Driver); why != "" {
		return "the driver " + r.Driver + " is not served: " + why
	}
	if r.Survey == nil {
		return ""
	}
	found, known := r.surveys.of(image)
	switch {
	case !known:
		return "the image " + named(image) + " was not looked into yet"
	case found.err != nil:
		return "the image " + named(image) + " could not be looked into: " + reason(found.err)
	}
	var lacks []string
	for _, p := range l.Programs() {
		if !found.Programs[p] {
			lacks = append(lacks, p)
		}
	}
	if len(lacks) == 0 {
		return ""
	}
	return "the image " + named(image) + " has no " + strings.Join(lacks, ", ")
}

func named(image string) string { return cmp.Or(image, "of the driver") }

// reason is the end of an error's chain that says what is wrong.
func reason(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Error()
	}
	return err.Error()
}

// languages is what the manager is told of the languages.
func (r *run) languages() []language.Status {
	all := r.Languages.All()
	summaries := make([]language.Status, len(all))
	for i, l := range all {
		image := r.imageFor(l)
		why := line(r.inactive(l, image))
		summaries[i] = language.Status{
			Name: l.Name, Aliases: l.Aliases, File: l.File, Compiled: l.Compile != nil, Image: line(image), Active: why == "", Reason: why,
		}
	}
	return summaries
}
