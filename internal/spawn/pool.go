package spawn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Config says how to run spawners.
type Config struct {
	// Sentry is the path of the aurea-sentry binary.
	Sentry string
	// Count is how many sandboxes can be in the making at once; at least 1.
	Count int
	// Deadline bounds one operation of a spawner; 20 s by default. Memory that has
	// to be read from disk may take ten times as long.
	Deadline time.Duration
	Logger   *slog.Logger
}

// Pool holds the spawners of one worker. Its methods may be called from many
// goroutines.
type Pool struct {
	config Config
	idle   chan *spawner // every live spawner that is not in use; nil is a place for one
	closed chan struct{}
	once   sync.Once
}

// NewPool returns a pool. The spawners are started when they are first needed;
// Warm starts them ahead.
func NewPool(config Config) *Pool {
	config.Count = max(config.Count, 1)
	if config.Deadline <= 0 {
		config.Deadline = 20 * time.Second
	}
	p := &Pool{
		config: config,
		idle:   make(chan *spawner, config.Count),
		closed: make(chan struct{}),
	}
	for range config.Count {
		p.idle <- nil
	}
	return p
}

// Warm starts one spawner, so that a binary that cannot run is found now.
func (p *Pool) Warm(ctx context.Context) error {
	s, err := p.take(ctx)
	if err != nil {
		return err
	}
	_, err = p.use(ctx, s, Request{})
	return err
}

// Create has a sandbox made. When it fails, for whatever reason and also when
// ctx ends, processes and files of the sandbox may be left: the caller removes
// them. No spawner works on this sandbox any more once Create has returned.
func (p *Pool) Create(ctx context.Context, create Create) (Made, error) {
	s, err := p.take(ctx)
	if err != nil {
		return Made{}, err
	}
	response, err := p.use(ctx, s, Request{Create: &create})
	if err != nil {
		return Made{}, fmt.Errorf("create sandbox %s: %w", create.ID, err)
	}
	if response.Made == nil {
		return Made{}, fmt.Errorf("create sandbox %s: the spawner named no processes", create.ID)
	}
	return *response.Made, nil
}

// take waits for a spawner that nobody uses, and starts it if need be.
func (p *Pool) take(ctx context.Context) (*spawner, error) {
	var s *spawner
	select {
	case <-p.closed:
		return nil, errClosed
	default:
	}
	select {
	case <-p.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, fault.New(fault.Unavailable, "wait for a free spawner: %w", context.Cause(ctx))
	case s = <-p.idle:
	}
	if s != nil && s.alive() {
		return s, nil
	}
	if s != nil {
		s.stop()
	}
	s, err := startSpawner(p.config)
	if err != nil {
		p.idle <- nil
		return nil, err
	}
	return s, nil
}

// use lets s answer one request and puts it back, or its empty place if it
// cannot be used again.
func (p *Pool) use(ctx context.Context, s *spawner, request Request) (Response, error) {
	deadline := p.config.Deadline
	if request.Create != nil && request.Create.Restore != "" {
		deadline *= 10
	}
	ctx, cancel := context.WithTimeoutCause(ctx, deadline, errDeadline)
	defer cancel()
	response, err := s.call(ctx, request)
	if err != nil {
		s.stop()
		p.config.Logger.Warn("spawner was stopped and will be replaced", "pid", s.pid(), "error", err)
		p.idle <- nil
		return Response{}, err
	}
	p.idle <- s
	if response.Error != "" {
		return Response{}, errors.New(response.Error)
	}
	return response, nil
}

// Close ends all spawners, waiting for those at work. Sandboxes live on.
func (p *Pool) Close() error {
	p.once.Do(func() {
		close(p.closed)
		for range p.config.Count {
			if s := <-p.idle; s != nil {
				s.stop()
			}
		}
	})
	return nil
}

var (
	errClosed   = fault.New(fault.Conflict, "the spawners were closed")
	errDeadline = fault.New(fault.Unavailable, "the spawner did not answer in time")
)
