package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"sync"
	"time"

	"github.com/moby/moby/api/types/build"
	"github.com/moby/moby/client"

	ours "github.com/aurea-dev/aurea/internal/build"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/image"
)

// longest bounds a build.
const longest = time.Hour

// Config is what builds are made with.
type Config struct {
	// Host is the address of the Docker Engine.
	Host string
	// Images is where the results go.
	Images *image.Store
	// Default is the name of the image that ours.Default makes.
	Default string
	// Shipped are the Dockerfiles that came along, one folder each. Folder is
	// one on disk with more of them, which go before those; "" is none.
	Shipped fs.FS
	Folder  string
}

// Engine builds images, one at a time.
type Engine struct {
	config Config
	turn   chan struct{}
}

// New makes a builder. It does not look for the engine yet.
func New(config Config) *Engine {
	return &Engine{config: config, turn: make(chan struct{}, 1)}
}

// Build builds an image. upload is the context where the order says that one
// comes along; it is read before anything is built. tell is called in order,
// one call at a time; when it fails, the build ends.
//
// Kinds of faults: NotFound where there is no such Dockerfile, Unavailable
// where no engine answers, Exhausted while another build goes on, and Invalid
// with the code build_failed, which names the line, where the Dockerfile is to
// blame.
func (e *Engine) Build(ctx context.Context, order ours.Order, upload io.Reader, tell func(ours.Step) error) (ours.Result, error) {
	if err := order.Check(); err != nil {
		return ours.Result{}, err
	}
	tag, err := e.tag(order)
	if err != nil {
		return ours.Result{}, err
	}
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	default:
		return ours.Result{}, fault.New(fault.Exhausted, "another image is being built; try again when it is done").WithCode("build_busy")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fault.New(fault.Unavailable, "the build took longer than %s", longest))
	defer cancel()
	c, err := e.assemble(order, upload)
	if err != nil {
		return ours.Result{}, err
	}
	defer c.close()
	api, err := e.dial(ctx)
	if err != nil {
		return ours.Result{}, err
	}
	defer func() { _ = api.Close() }()
	id, err := e.run(ctx, api, order, tag, c, tell)
	if err != nil {
		return ours.Result{}, ended(ctx, err)
	}
	r, err := e.take(ctx, api, id, tag, tell)
	return r, ended(ctx, err)
}

// ended says why the context ended, where that is why.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return fmt.Errorf("build the image: %w", cause)
	}
	return err
}

func (e *Engine) tag(order ours.Order) (string, error) {
	switch {
	case order.Tag != "":
	case order.Uploaded:
		return "", fault.Field("image", "say what the image shall be called")
	case order.Name == "" || order.Name == ours.Default:
		order.Tag = e.config.Default
	default:
		order.Tag = order.Name
	}
	return image.ParseTag(order.Tag)
}

// dial reaches the engine, or says what to do without one.
func (e *Engine) dial(ctx context.Context) (*client.Client, error) {
	const patience = 5 * time.Second
	api, err := client.New(client.WithHost(e.config.Host), client.WithUserAgent("aurea"))
	if err == nil {
		ping, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if _, err = api.Ping(ping, client.PingOptions{}); err == nil {
			return api, nil
		}
		_ = api.Close()
	}
	return nil, fault.New(fault.Unavailable,
		"no Docker Engine answers at %s (%s): start one, or set DOCKER_HOST; without one, `aurea image import FILE NAME` takes a docker save, an OCI layout or the tar of a root, and `aurea image pull NAME` an image of a registry",
		e.config.Host, plain(err)).WithCode("no_engine")
}

// plain is the last reason of a failed connection: what stands before it names
// the address again.
func plain(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// run builds, and returns the engine's name for the result.
func (e *Engine) run(ctx context.Context, api *client.Client, order ours.Order, tag string, c *buildContext, tell func(ours.Step) error) (string, error) {
	// A reader that fails must not leave the engine at work.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	args := map[string]*string{}
	for name, value := range order.Args {
		args[name] = &value
	}
	answer, err := api.ImageBuild(ctx, c.reader(), client.ImageBuildOptions{
		Tags: []string{tag}, Dockerfile: c.dockerfile, BuildArgs: args, NoCache: order.Fresh, PullParent: order.Fresh,
		Remove: true, ForceRemove: true,
		// The one that every engine has, without a session.
		Version: build.BuilderV1,
	})
	if err != nil {
		return "", c.refused(err)
	}
	defer func() { _ = answer.Body.Close() }()
	return c.follow(answer.Body, tell)
}

// take makes the result one of our images.
func (e *Engine) take(ctx context.Context, api *client.Client, id, tag string, tell func(ours.Step) error) (ours.Result, error) {
	saved, err := api.ImageSave(ctx, []string{id})
	if err != nil {
		return ours.Result{}, fault.New(fault.Unavailable, "fetch the image from the Docker Engine: %w", err)
	}
	defer func() { _ = saved.Close() }()
	r, err := e.config.Images.ImportArchive(ctx, saved, tag, "built by Docker", importing(tell))
	if err != nil {
		return ours.Result{}, fmt.Errorf("take over the image: %w", err)
	}
	return ours.Result{Image: tag, Digest: r.Digest, Size: r.Size}, nil
}

// importing says how far the import is. Nobody can end it by not listening: it
// is short, and the context can.
func importing(tell func(ours.Step) error) image.Progress {
	const often = 200 * time.Millisecond
	var mu sync.Mutex
	var last time.Time
	return func(s image.Step) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) < often {
			return
		}
		last = time.Now()
		_ = tell(ours.Step{Doing: "import", Text: s.Doing, Done: s.Done, Total: s.Total})
	}
}
