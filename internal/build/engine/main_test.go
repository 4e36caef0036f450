package engine_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/images"
	"github.com/aurea-dev/aurea/internal/build/engine"
	"github.com/aurea-dev/aurea/internal/driver/docker/dockertest"
	"github.com/aurea-dev/aurea/internal/image"
)

// docker is the one engine of all tests: it starts with the first that needs it.
var docker struct {
	once sync.Once
	*dockertest.Engine
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if docker.Engine != nil {
		if err := docker.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if err := goleak.Find(goleak.IgnoreAnyFunction("os/exec.(*Cmd).Wait")); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// host is the address of a real engine.
func host(t *testing.T) string {
	t.Helper()
	if why := dockertest.Missing(); why != "" {
		if os.Getenv("CI") == "true" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	docker.once.Do(func() { docker.Engine, docker.err = dockertest.StartWithBase(context.Background(), "") })
	if docker.err != nil {
		t.Fatal(docker.err)
	}
	return docker.Host
}

// builder is one with a store of its own.
func builder(t *testing.T, address, folder string) (*engine.Engine, *image.Store) {
	t.Helper()
	store, err := image.Open(image.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return engine.New(engine.Config{
		Host: address, Images: store, Default: "aurea-sandbox:latest", Shipped: images.Files(), Folder: folder,
	}), store
}

// entry is one of an archive.
type entry struct {
	tar.Header
	body string
}

func file(name, body string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(body))}, body}
}

func archive(t testing.TB, entries ...entry) *bytes.Buffer {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}
