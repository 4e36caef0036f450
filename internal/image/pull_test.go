package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// twoLayers is an image as honest tools make them.
func twoLayers(t testing.TB) v1.Image {
	return made(t, nil,
		layerOf(t, dir("bin"), entry{name: "bin/sh", content: "a shell", mode: 0o4755}, file("etc/passwd", "root:x:0:0::/root:/bin/sh\n"), file("gone", "x")),
		layerOf(t, file("bin/more", "more"), file(".wh.gone", "")))
}

// checkTwoLayers checks the root of twoLayers.
func checkTwoLayers(t testing.TB, s *Store, name string) {
	t.Helper()
	got := rootOf(t, s, name)
	for path, want := range map[string]string{
		"/bin/sh": "755 0 a shell", "/bin/more": "644 0 more", "/.aurea": "755 0 /",
		"/workspace": "755 1000 /", "/tmp": "1777 0 /", "/proc": "755 0 /",
		"/etc/passwd": "644 0 root:x:0:0::/root:/bin/sh\nsandbox:x:1000:1000:sandbox:/workspace:/bin/sh\naurea:x:65533:65533:guest:/:/bin/false\n",
	} {
		if got[path] != want {
			t.Errorf("%s is %q", path, got[path])
		}
	}
	if _, ok := got["/gone"]; ok {
		t.Error("/gone is there")
	}
}

func TestPull(t *testing.T) {
	t.Parallel()
	from, img := serve(t), twoLayers(t)
	upload(t, from+"/team/tool:1", img)
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	s := open(t)
	var steps atomic.Int64
	r, err := s.Pull(t.Context(), from+"/team/tool:1", func(Step) { steps.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	if r.Digest != digest.String() || r.User != "node" || len(r.Layers) != 2 || steps.Load() == 0 {
		t.Errorf("%+v, %d steps", r, steps.Load())
	}
	checkTwoLayers(t, s, from+"/team/tool:1")
	found, err := s.Resolve(t.Context(), from+"/team/tool:1")
	if err != nil {
		t.Fatal(err)
	}
	want := sandbox.Image{Name: from + "/team/tool:1", Digest: digest.String(), Root: found.Root, Env: []string{"PATH=/bin", "LANG=C"}, User: "node"}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Stat(found.Root); err != nil || info.Mode() != 0o444 {
		t.Error(info, err)
	}
	byDigest := from + "/team/tool@" + digest.String()
	if _, err := s.Pull(t.Context(), byDigest, nil); err != nil {
		t.Error(err)
	}
	for _, name := range []string{byDigest, digest.String()} {
		if got, err := s.Resolve(t.Context(), name); err != nil || got.Root != found.Root {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(s.config.Dir, "tmp")); err != nil || len(left) != 0 {
		t.Errorf("left aside: %v, %v", left, err)
	}
}

func TestPullWhatIsNotThere(t *testing.T) {
	t.Parallel()
	from := serve(t)
	s := open(t)
	for name, kind := range map[string]fault.Kind{
		from + "/no:1":              fault.NotFound,
		"Not A Name":                fault.Invalid,
		"sha256:" + hexOfText("x"):  fault.Invalid,
		from + "/no@sha256:1234":    fault.Invalid,
		"127.0.0.1:1/unreachable:1": fault.Unavailable,
	} {
		if _, err := s.Pull(t.Context(), name, nil); !fault.Is(err, kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Resolve(t.Context(), from+"/no:1"); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "aurea image pull") {
		t.Error(err)
	}
	upload(t, from+"/arm:1", made(t, func(c *v1.ConfigFile) { c.Architecture = "arm64" }, layerOf(t, file("a", "1"))))
	if _, err := s.Pull(t.Context(), from+"/arm:1", nil); fault.CodeOf(err) != "bad_platform" {
		t.Error(err)
	}
}

func hexOfText(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:]) }

// An index of several machines: ours is taken.
func TestPullFromIndex(t *testing.T) {
	t.Parallel()
	from := serve(t)
	other := made(t, func(c *v1.ConfigFile) { c.Architecture = "arm64" }, layerOf(t, file("other", "1")))
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: twoLayers(t), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	ref, err := name.ParseReference(from + "/both:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	s := open(t)
	if _, err := s.Pull(t.Context(), from+"/both:1", nil); err != nil {
		t.Fatal(err)
	}
	checkTwoLayers(t, s, from+"/both:1")

	folder := t.TempDir()
	if _, err := layout.Write(folder, index); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Import(t.Context(), folder, "both:2", nil); err != nil {
		t.Fatal(err)
	}
	checkTwoLayers(t, s, "both:2")
}

// Nothing leaves this machine in the clear, also where a registry sends us on.
func TestClearText(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://192.0.2.1/v2/", http.StatusTemporaryRedirect)
	}))
	t.Cleanup(elsewhere.Close)
	s := open(t)
	for _, name := range []string{strings.TrimPrefix(elsewhere.URL, "http://") + "/a:1"} {
		if _, err := s.Pull(t.Context(), name, nil); fault.CodeOf(err) != "insecure_registry" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for url, may := range map[string]bool{
		"http://10.0.0.1/v2/": false, "http://host.local/v2/": false, "http://127.0.0.1:5000/v2/": true, "http://[::1]:5000/v2/": true,
		"http://localhost:5000/v2/": true, "https://10.0.0.1/v2/": true, "http://ok.example:5000/v2/": true, "http://ok.example/v2/": false, "http://localhost.example/": false,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = guarded{stop{}, []string{"ok.example:5000"}}.RoundTrip(r)
		if got := errors.Is(err, errStopped); got != may {
			t.Errorf("%s: %v", url, err)
		}
	}
}

var errStopped = errors.New("stopped")

type stop struct{}

func (stop) RoundTrip(*http.Request) (*http.Response, error) { return nil, errStopped }

// A registry that lies about bytes, or whose image lies about its layers.
func TestLyingRegistry(t *testing.T) {
	t.Parallel()
	real := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	var lie atomic.Pointer[func(path string, body []byte) []byte]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		change := lie.Load()
		if change == nil || r.Method != http.MethodGet {
			real.ServeHTTP(w, r)
			return
		}
		record := httptest.NewRecorder()
		real.ServeHTTP(record, r)
		body := (*change)(r.URL.Path, record.Body.Bytes())
		for k, v := range record.Header() {
			w.Header()[k] = v
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.WriteHeader(record.Code)
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	from := strings.TrimPrefix(server.URL, "http://")
	upload(t, from+"/lie:1", twoLayers(t))
	falsehood := func(path string, body []byte) []byte {
		if strings.Contains(path, "/blobs/") && len(body) > 0 {
			body = bytes.Clone(body)
			body[len(body)/2] ^= 1
		}
		return body
	}
	lie.Store(&falsehood)
	s := open(t)
	if _, err := s.Pull(t.Context(), from+"/lie:1", nil); err == nil {
		t.Error("false bytes were taken")
	}
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
	lie.Store(nil)
	if _, err := s.Pull(t.Context(), from+"/lie:1", nil); err != nil {
		t.Errorf("then the truth: %v", err)
	}
	upload(t, from+"/layers:1", made(t, func(c *v1.ConfigFile) { c.RootFS.DiffIDs[0].Hex = hexOfText("else") }, layerOf(t, file("a", "1"))))
	if _, err := s.Pull(t.Context(), from+"/layers:1", nil); fault.CodeOf(err) != "bad_digest" {
		t.Errorf("layers of another: %v", err)
	}
	upload(t, from+"/count:1", made(t, func(c *v1.ConfigFile) { c.RootFS.DiffIDs = nil }, layerOf(t, file("a", "1"))))
	if _, err := s.Pull(t.Context(), from+"/count:1", nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("layers without contents: %v", err)
	}
}

// Two stores over one folder, and several pulls of one image: all end well, and
// each layer is brought a few times at most.
func TestConcurrentPulls(t *testing.T) {
	t.Parallel()
	from := serve(t)
	upload(t, from+"/tool:1", twoLayers(t))
	one := open(t)
	two, err := Open(one.config)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	errs := make(chan error, 20)
	for i := range 20 {
		all.Go(func() {
			s := []*Store{one, two}[i%2]
			_, err := s.Pull(context.Background(), from+"/tool:1", nil)
			if err == nil && i%5 == 0 {
				_, err = s.GC(context.Background(), nil, false)
			}
			if err == nil {
				_, err = s.Resolve(context.Background(), from+"/tool:1")
			}
			errs <- err
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	checkTwoLayers(t, two, from+"/tool:1")
	if roots, err := os.ReadDir(filepath.Join(one.config.Dir, "roots")); err != nil || len(roots) != 1 {
		t.Error(roots, err)
	}
}

func TestPush(t *testing.T) {
	t.Parallel()
	from := serve(t)
	s, ctx := open(t), t.Context()
	r, err := s.ImportArchive(ctx, bytes.NewReader(layerOf(t, file("a", "1"))), "mine", "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Push(ctx, "mine", from+"/mine:1", nil); err != nil {
		t.Fatal(err)
	}
	other := open(t)
	got, err := other.Pull(ctx, from+"/mine:1", nil)
	if err != nil || got.Digest != r.Digest {
		t.Fatal(got, err)
	}
	if got := rootOf(t, other, from+"/mine:1")["/a"]; got != "644 0 1" {
		t.Error(got)
	}
	upload(t, from+"/tool:1", twoLayers(t))
	pulled, err := other.Pull(ctx, from+"/tool:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	again := serve(t)
	if _, err := other.Push(ctx, from+"/tool:1", again+"/copy:1", nil); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Pull(ctx, again+"/copy:1", nil); err != nil || got.Digest != pulled.Digest {
		t.Error(got, err)
	}
	if _, err := s.Push(ctx, "nothing", from+"/x", nil); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}
