package image

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"go.uber.org/goleak"
	gvisor "gvisor.dev/gvisor/pkg/erofs"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"))
}

// entry is one entry of a layer.
type entry struct {
	name    string
	kind    byte // a file if it is 0
	content string
	link    string
	mode    int64
	uid     int
}

func file(name, content string) entry { return entry{name: name, content: content} }
func dir(name string) entry           { return entry{name: name, kind: tar.TypeDir, mode: 0o755} }
func link(name, to string) entry      { return entry{name: name, kind: tar.TypeSymlink, link: to} }
func hard(name, to string) entry      { return entry{name: name, kind: tar.TypeLink, link: to} }

func layerOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Mode: e.mode, Uid: e.uid, Size: int64(len(e.content))}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func open(t testing.TB, change ...func(*Config)) *Store {
	t.Helper()
	c := Config{Dir: filepath.Join(t.TempDir(), "images"), Architecture: "amd64", Host: testHost(t)}
	for _, f := range change {
		f(&c)
	}
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// made builds an image from layers.
func made(t testing.TB, change func(*v1.ConfigFile), layers ...[]byte) v1.Image {
	t.Helper()
	img := empty.Image
	for _, l := range layers {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(l)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			t.Fatal(err)
		}
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", "amd64"
	c.Config.Env, c.Config.User = []string{"PATH=/bin", "LANG=C"}, "node"
	if change != nil {
		change(c)
	}
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	return img
}

// serve starts a registry on this machine and returns its address.
func serve(t testing.TB) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func upload(t testing.TB, to string, img v1.Image) {
	t.Helper()
	ref, err := name.ParseReference(to)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
}

// look reads a root as a sandbox does: each path with its mode, owner, and
// content or target.
func look(t testing.TB, root string) map[string]string {
	t.Helper()
	f, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	image, err := gvisor.OpenImage(f)
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	found := map[string]string{}
	var walk func(at string, nid uint64)
	walk = func(at string, nid uint64) {
		n, err := image.Inode(nid)
		if err != nil {
			t.Fatal(err)
		}
		said := fmt.Sprintf("%o %d", n.Mode()&0o7777, n.UID())
		switch {
		case n.IsDir():
			said += " /"
			err = n.IterDirents(func(child string, _ uint8, nid uint64) error {
				if child != "." && child != ".." {
					walk(path.Join(at, child), nid)
				}
				return nil
			})
		case n.IsSymlink():
			var to string
			to, err = n.Readlink()
			said += " -> " + to
		default:
			ranges, failed := n.DataRanges()
			said, err = said+" "+string(ranges[0].Bytes), failed
		}
		if err != nil {
			t.Fatal(err)
		}
		found[at] = said
	}
	walk("/", image.RootNid())
	return found
}

// rootOf resolves a name and reads its root.
func rootOf(t testing.TB, s *Store, name string) map[string]string {
	t.Helper()
	img, err := s.Resolve(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return look(t, img.Root)
}

// testHost is a small host.
func testHost(t testing.TB) Host {
	t.Helper()
	h := DefaultHost()
	h.Top = t.TempDir()
	return h
}
