package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aurea-dev/aurea/client"
)

// printing is a program that prints on both streams for a while: what is not
// UTF-8, characters of several bytes, and once more than any buffer on the way
// takes. It is the same however often it is read.
const printing = `
import sys, time
out, err = sys.stdout.buffer, sys.stderr.buffer
for i in range(60):
    out.write(b"out %d \xc3\xa4\xff\n" % i)
    err.write("err {} ü€\n".format(i).encode())
    if i == 20:
        out.write(b"x" * 1500000 + b"\n")
    out.flush()
    err.flush()
    time.sleep(0.1)
`

// printed is what it prints.
func printed() (stdout, stderr []byte) {
	var out, errs bytes.Buffer
	for i := range 60 {
		fmt.Fprintf(&out, "out %d \xc3\xa4\xff\n", i)
		fmt.Fprintf(&errs, "err %d ü€\n", i)
		if i == 20 {
			out.WriteString(strings.Repeat("x", 1_500_000) + "\n")
		}
	}
	return out.Bytes(), errs.Bytes()
}

// TestOutputIsWholeAcrossADeadManager kills the manager with -9, again and
// again, while a run prints in a real sandbox. Whoever reads, in each of the
// ways that there are, gets every byte once.
func TestOutputIsWholeAcrossADeadManager(t *testing.T) {
	t.Parallel()
	needGVisor(t)
	sock, url, err := socket()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sock.Close() })
	data := filepath.Join(dataFolder(t), "data")
	begin := func() *process {
		p, err := start([]string{"AUREA_LISTEN_FD=3", "AUREA_DATA=" + data}, sock, "manager")
		if err == nil {
			err = p.expect("manager serves")
		}
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	manager := begin()
	t.Cleanup(func() { _, _ = manager.stop() })
	k := newAsker(t, url)
	worker := startWorker(t, k, binaries, filepath.Join(dataFolder(t), "worker"), 1, "AUREA_POOL=", "AUREA_ON_STOP=end")
	t.Cleanup(func() {
		if code, err := worker.stop(); err != nil || code != 0 {
			t.Errorf("the worker ends with %d, %v", code, err)
		}
	})
	c, err := client.New(url, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	runs, err := c.SubmitRuns(t.Context(), client.Run{Code: printing, Language: "python", Timeout: 300})
	if err != nil {
		t.Fatal(err)
	}
	id := runs[0].RunID

	wantOut, wantErr := printed()
	heard := newEar()
	var reading sync.WaitGroup
	reading.Go(func() {
		var stderr bytes.Buffer
		s, err := c.FollowRun(t.Context(), id, heard, &stderr)
		same(t, "stdout as events", heard.heard(), wantOut, err)
		same(t, "stderr as events", stderr.Bytes(), wantErr, err)
		if s.Status != client.Completed || s.Attempt != 1 || s.Result == nil || s.Result.ExitCode != 0 {
			t.Errorf("it is %+v", s)
		}
	})
	for stream, want := range map[string][]byte{"stdout": wantOut, "stderr": wantErr} {
		reading.Go(func() {
			got, err := k.pieces(t.Context(), id, stream)
			same(t, stream+" piece by piece", got, want, err)
		})
		reading.Go(func() {
			got, err := k.followed(t.Context(), id, stream)
			same(t, stream+" followed", got, want, err)
		})
	}
	for _, line := range []string{"out 5 ", "out 21 ", "out 40 "} {
		heard.await(t, line)
		if err := manager.kill(); err != nil {
			t.Fatal(err)
		}
		manager = begin()
	}
	reading.Wait()
}

func same(t *testing.T, what string, got, want []byte, err error) {
	t.Helper()
	if err == nil && bytes.Equal(got, want) {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	t.Errorf("%s: %d bytes of %d, which differ at %d (%.60q), %v", what, len(got), len(want), at, got[at:], err)
}

// ear is a writer that tells what it heard.
type ear struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // closed when there is more
}

func newEar() *ear { return &ear{more: make(chan struct{})} }

func (e *ear) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.more)
	e.more = make(chan struct{})
	return e.text.Write(p)
}

func (e *ear) heard() []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	return bytes.Clone(e.text.Bytes())
}

// await returns when the text was heard.
func (e *ear) await(t *testing.T, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		e.mu.Lock()
		there, more := bytes.Contains(e.text.Bytes(), []byte(text)), e.more
		e.mu.Unlock()
		if there {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			t.Fatalf("nobody hears %q", text)
		}
	}
}

// pieces asks for the output of a run piece by piece, until it has ended.
func (k *asker) pieces(ctx context.Context, id, stream string) (all []byte, err error) {
	for ctx.Err() == nil {
		a, err := k.ask(ctx, http.MethodGet, fmt.Sprintf("/api/v1/runs/%s/output?stream=%s&offset=%d", id, stream, len(all)), nil)
		if err != nil {
			pause(ctx, slow/300) // the manager is dead, for now
			continue
		}
		next, err := strconv.Atoi(a.header.Get("X-Next-Offset"))
		if err != nil || a.status != http.StatusOK || next != len(all)+len(a.body) {
			return all, fmt.Errorf("at %d: %d, next is %d, %w", len(all), a.status, next, err)
		}
		if all = append(all, a.body...); a.header.Get("X-Output-Ended") == "true" {
			return all, nil
		}
		if len(a.body) == 0 {
			pause(ctx, slow/300)
		}
	}
	return all, context.Cause(ctx)
}

// followed reads one stream of a run as it comes, and goes on where a
// connection was cut.
func (k *asker) followed(ctx context.Context, id, stream string) (all []byte, err error) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/api/v1/runs/%s/output?follow=true&stream=%s&offset=%d", k.base, id, stream, len(all)), nil)
		if err != nil {
			return all, err
		}
		res, err := k.http.Do(req)
		if err != nil {
			pause(ctx, slow/300)
			continue
		}
		got, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if all = append(all, got...); err == nil {
			return all, nil
		}
	}
	return all, context.Cause(ctx)
}
