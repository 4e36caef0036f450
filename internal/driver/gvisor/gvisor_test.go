package gvisor_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

func TestFirst(t *testing.T) {
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	out, errs, exit := sh(t, b, "id; pwd; env; ls -la / /workspace; cat /proc/self/status | grep -i -E 'cap|newpriv|uid'; echo hi >/dev/stdout; echo err >&2; python3 -c 'print(1)'; mount; ulimit -c; cat /proc/self/cgroup; ls /sys/fs/cgroup; kill -9 1; ls -la /proc/1/fd; cat /proc/1/environ; ls -la /dev; exit 7")
	t.Logf("%s\n---\n%s\n%+v", out, errs, exit)
}

// sh runs a script to its end.
func sh(t testing.TB, b sandbox.Box, script string) (stdout, stderr string, exit sandbox.Exit) {
	t.Helper()
	id, err := sandbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.Exec(context.Background(), sandbox.ExecSpec{ID: id, Command: []string{"sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	var streams [3]bytes.Buffer
	for {
		f, err := p.Next(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		streams[f.Stream].Write(f.Data)
	}
	exit, err = p.Wait(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return streams[sandbox.Stdout].String(), streams[sandbox.Stderr].String(), exit
}
