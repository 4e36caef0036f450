package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Server is a manager and a worker that do runs, as processes of their own.
type Server struct {
	*rig
	// Data is their folder.
	Data   string
	http   *http.Client
	remove func()
}

// Serve starts a manager and a worker with real sandboxes, from the images of a
// folder, and waits until they are ready. env is for both.
func (b *Bench) Serve(ctx context.Context, images string, env ...string) (*Server, error) {
	data, remove, err := folder("")
	if err != nil {
		return nil, err
	}
	r, err := b.setUp(ctx, data, env, append([]string{"AUREA_IMAGES=" + images, "AUREA_DRAIN_TIMEOUT=1ms"}, env...))
	if err != nil {
		remove()
		return nil, err
	}
	s := &Server{rig: r, Data: data, http: caller(), remove: remove}
	s.http.Timeout = 10 * time.Minute
	if err := s.awaitSandboxes(ctx, r.procs[1]); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// awaitSandboxes waits until the worker serves, and its pool is full.
func (s *Server) awaitSandboxes(ctx context.Context, worker *process) error {
	const often, most = 50 * time.Millisecond, 10 * time.Minute // the first image takes a while
	ctx, cancel := context.WithTimeoutCause(ctx, most, errors.New("no sandboxes were to be had within ten minutes"))
	defer cancel()
	tick := time.NewTicker(often)
	defer tick.Stop()
	for {
		var health struct {
			Available bool `json:"sandbox_available"`
		}
		if _, err := s.get(ctx, "/health", &health); err == nil && health.Available {
			if full, err := s.poolIsFull(ctx); err == nil && full {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-worker.done:
			return errors.New("the worker ended instead of starting; run with --verbose to see why")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// poolView is what is read of the pool.
type poolView []struct {
	Wanted  int `json:"wanted"`
	Waiting int `json:"waiting"`
}

func (s *Server) poolIsFull(ctx context.Context) (bool, error) {
	var p poolView
	if _, err := s.get(ctx, "/api/v1/pool", &p); err != nil {
		return false, err
	}
	for _, c := range p {
		if c.Waiting < c.Wanted {
			return false, nil
		}
	}
	return true, nil
}

// runView is what is read of the answer to a run.
type runView struct {
	Success bool   `json:"success"`
	Exit    int    `json:"exit_code"`
	Stdout  string `json:"stdout"`
	Stderr  string `json:"stderr"`
	Verdict string `json:"verdict"`
	Warm    bool   `json:"warm"`
	Timing  []struct {
		Stage   string  `json:"stage"`
		Seconds float64 `json:"seconds"`
	} `json:"timing"`
}

// run asks for one run and returns its answer.
func (s *Server) run(ctx context.Context, request any) (runView, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return runView{}, err
	}
	var v runView
	_, err = call(ctx, s.http, http.MethodPost, s.url+"/run?debug=timing", string(body), &v)
	return v, err
}

// Runner is this server as one way to run programs.
func (s *Server) Runner(name string) Runner {
	return Runner{Name: name, CPUs: s.cpus, Settle: s.settle, Do: func(ctx context.Context, h Hello) (Ran, error) {
		v, err := s.run(ctx, map[string]any{"code": h.Code, "language": h.Language})
		if err == nil && (!v.Success || v.Stdout != "hello\n") {
			err = fmt.Errorf("it ended with %d (%s): %q %q", v.Exit, v.Verdict, v.Stdout, v.Stderr)
		}
		if err != nil {
			return Ran{}, err
		}
		ran := Ran{Warm: v.Warm}
		for _, at := range v.Timing {
			ran.Stages = append(ran.Stages, Took{at.Stage, time.Duration(at.Seconds * float64(time.Second))})
		}
		return ran, nil
	}}
}

// settle waits until the pool is full and no sandbox comes or goes any more.
func (s *Server) settle(ctx context.Context) error {
	const often, most = 20 * time.Millisecond, 20 * time.Second
	tick := time.NewTicker(often)
	defer tick.Stop()
	last := -1
	for begin := time.Now(); time.Since(begin) < most; {
		full, err := s.poolIsFull(ctx)
		if err != nil {
			return err
		}
		n := len(s.sandboxes())
		if full && n == last {
			return nil
		}
		last = n
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return errors.New("the pool did not fill up again within 20 s")
}

// sandboxes are the processes of this server's sandboxes, which have its folder
// in their command lines.
func (s *Server) sandboxes() []string {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var pids []string
	for _, path := range lines {
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(s.Data)) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

func (s *Server) cpus() map[string]time.Duration {
	used := s.cpu()
	return map[string]time.Duration{"manager": used[0], "worker": used[1]}
}

// Close stops both and removes their folder.
func (s *Server) Close() {
	s.tearDown()
	s.http.CloseIdleConnections()
	s.remove()
}
