package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
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
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/klauspost/compress/gzip"

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
		"/bin/sh": "755 0 a shell", "/bin/more": "644 0 more", "/.aurea/guest": "555 0 the guest",
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

func TestManifests(t *testing.T) {
	t.Parallel()
	s := open(t)
	digest := "sha256:" + hexOfText("x")
	config := fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":2}`, digest)
	layer := func(more string) string {
		return fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":%q,"size":2%s}`, digest, more)
	}
	for name, test := range map[string]struct {
		raw  string
		kind fault.Kind
	}{
		"no JSON":                 {`{`, fault.Invalid},
		"an old schema":           {`{"schemaVersion":1}`, fault.Invalid},
		"no configuration":        {`{"schemaVersion":2}`, fault.Invalid},
		"a chart":                 {`{"schemaVersion":2,"config":` + strings.Replace(config, "oci.image.config", "cncf.helm.config", 1) + `}`, fault.Invalid},
		"a large document":        {`{"schemaVersion":2,"config":` + strings.Replace(config, `"size":2`, `"size":99999999`, 1) + `}`, fault.TooLarge},
		"a foreign layer":         {`{"schemaVersion":2,"config":` + config + `,"layers":[` + layer(`,"urls":["http://169.254.169.254/"]`) + `]}`, fault.Invalid},
		"a layer in place":        {`{"schemaVersion":2,"config":` + config + `,"layers":[` + layer(`,"data":"eA=="`) + `]}`, fault.Invalid},
		"a negative size":         {`{"schemaVersion":2,"config":` + config + `,"layers":[` + strings.Replace(layer(""), `"size":2`, `"size":-2`, 1) + `]}`, fault.Invalid},
		"an endless size":         {`{"schemaVersion":2,"config":` + config + `,"layers":[` + strings.Replace(layer(""), `"size":2`, `"size":9223372036854775807`, 1) + `]}`, fault.TooLarge},
		"a digest that is a path": {`{"schemaVersion":2,"config":` + strings.Replace(config, digest, "sha256:../../../../etc/passwd", 1) + `}`, fault.Invalid},
		"another digest":          {`{"schemaVersion":2,"config":` + strings.Replace(config, digest, "sha512:"+strings.Repeat("a", 128), 1) + `}`, fault.Invalid},
		"no layer":                {`{"schemaVersion":2,"config":` + config + `,"layers":[` + strings.Replace(layer(""), "image.layer.v1.tar", "thing", 1) + `]}`, fault.Invalid},
		"too many layers":         {`{"schemaVersion":2,"config":` + config + `,"layers":[` + strings.TrimSuffix(strings.Repeat(layer("")+",", 300), ",") + `]}`, fault.TooLarge},
		"too many bytes":          {strings.Repeat(" ", 5<<20), fault.TooLarge},
	} {
		if _, err := s.parseManifest([]byte(test.raw)); !fault.Is(err, test.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	s := &Store{config: Config{Bounds: DefaultBounds()}}
	f.Add([]byte(`{"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:` + strings.Repeat("a", 64) + `","size":2}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := s.parseManifest(raw)
		if err != nil {
			return
		}
		for _, d := range append(m.Layers, m.Config) {
			path, err := s.blobPath(d.Digest.String())
			if err != nil || filepath.Dir(path) != "blobs/sha256" {
				t.Errorf("%q becomes %q, %v", d.Digest, path, err)
			}
		}
	})
}

func FuzzName(f *testing.F) {
	for _, seed := range []string{"python", "host", "a/b:c", "r.example:5000/x@sha256:" + strings.Repeat("a", 64), "../x", "docker.io/library/x", "X"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		known, err := ParseName(text)
		if err != nil {
			return
		}
		if again, err := ParseName(known); err != nil || again != known {
			t.Errorf("%q is %q is %q, %v", text, known, again, err)
		}
	})
}

func TestNames(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"python": "python:latest", "python:3.12": "python:3.12", "docker.io/library/python": "python:latest", "docker.io/python:3": "python:3",
		"team/tool": "team/tool:latest", "r.example/a:b": "r.example/a:b", "host": "host", "127.0.0.1:5000/x": "127.0.0.1:5000/x:latest",
	} {
		if got, err := ParseName(text); err != nil || got != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	s := open(t)
	for _, bad := range []string{"host", "host:latest", "library/host", "", "A", "a@sha256:" + hexOfText("x"), "sha256:" + hexOfText("x"), "../x"} {
		if _, err := s.ImportArchive(t.Context(), bytes.NewReader(layerOf(t, file("a", "1"))), bad, "", nil); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestImports(t *testing.T) {
	t.Parallel()
	img := twoLayers(t)
	saved := filepath.Join(t.TempDir(), "saved.tar")
	if err := tarball.WriteToFile(saved, name.MustParseReference("x:1").(name.Tag), img); err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(body)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	zipped := filepath.Join(t.TempDir(), "saved.tar.gz")
	if err := os.WriteFile(zipped, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(img); err != nil {
		t.Fatal(err)
	}
	oci := filepath.Join(t.TempDir(), "oci.tar")
	if out, err := exec.Command("tar", "-C", folder, "-cf", oci, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	root := filepath.Join(t.TempDir(), "root.tar")
	if err := os.WriteFile(root, layerOf(t, dir("bin"), file("bin/sh", "a shell"), file("bin/more", "more"), file("etc/passwd", "root:x:0:0::/root:/bin/sh\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t)
	for tag, from := range map[string]string{"saved:1": saved, "zipped:1": zipped, "folder:1": folder, "oci:1": oci} {
		if _, err := s.Import(t.Context(), from, tag, nil); err != nil {
			t.Errorf("%s: %v", tag, err)
			continue
		}
		checkTwoLayers(t, s, tag)
		if found, err := s.Resolve(t.Context(), tag); err != nil || found.User != "node" {
			t.Errorf("%s: %+v, %v", tag, found, err)
		}
	}
	r, err := s.Import(t.Context(), root, "root:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := rootOf(t, s, "root:1"); got["/bin/sh"] != "644 0 a shell" || got["/.aurea/guest"] != "555 0 the guest" {
		t.Errorf("%v", got)
	}
	if again, err := s.Import(t.Context(), root, "root:2", nil); err != nil || again.Digest != r.Digest {
		t.Errorf("the same file is another image: %s %s %v", again.Digest, r.Digest, err)
	}
}

func TestBadImports(t *testing.T) {
	t.Parallel()
	s := open(t)
	digest := hexOfText("{}")
	for name, test := range map[string]struct {
		body []byte
		kind fault.Kind
	}{
		"nothing":               {nil, fault.Invalid},
		"no archive":            {bytes.Repeat([]byte("junk"), 1000), fault.Invalid},
		"half a gzip":           {[]byte{0x1f, 0x8b, 8, 0, 0, 0}, fault.Invalid},
		"half a zstd":           {[]byte{0x28, 0xb5, 0x2f, 0xfd, 0xff}, fault.Invalid},
		"no manifest":           {layerOf(t, file("manifest.json", "{")), fault.Invalid},
		"two images":            {layerOf(t, file("manifest.json", "[{},{}]")), fault.Invalid},
		"a config of the host":  {layerOf(t, file("manifest.json", `[{"Config":"/etc/passwd"}]`)), fault.Invalid},
		"a config that climbs":  {layerOf(t, file("manifest.json", `[{"Config":"../../../../etc/passwd"}]`)), fault.Invalid},
		"a config that leads":   {layerOf(t, link("c", "/etc/passwd"), file("manifest.json", `[{"Config":"c"}]`)), fault.Invalid},
		"links in a circle":     {layerOf(t, link("c", "d"), link("d", "c"), file("manifest.json", `[{"Config":"c"}]`)), fault.Invalid},
		"a layer of the host":   {layerOf(t, file("c", "{}"), file("manifest.json", `[{"Config":"c","Layers":["/etc/passwd"]}]`)), fault.Invalid},
		"a layout of nothing":   {layerOf(t, file("oci-layout", "{}")), fault.Invalid},
		"a layout of no images": {layerOf(t, file("oci-layout", "{}"), file("index.json", `{"manifests":[]}`)), fault.NotFound},
		"a layout that climbs": {layerOf(t, file("oci-layout", "{}"), file("index.json",
			`{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:../../../etc/passwd","size":1}]}`)), fault.Invalid},
		"a layout that lies": {layerOf(t, file("oci-layout", "{}"), file("blobs/sha256/"+digest, "{} "), file("index.json",
			`{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:`+digest+`","size":2}]}`)), fault.Invalid},
		"a hostile root": {layerOf(t, file("../../x", "1")), fault.Invalid},
	} {
		if _, err := s.ImportArchive(t.Context(), bytes.NewReader(test.body), "bad:1", "", nil); !fault.Is(err, test.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Import(t.Context(), t.TempDir(), "bad:1", nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := s.Import(t.Context(), "/does/not/exist", "bad:1", nil); !fault.Is(err, fault.NotFound) {
		t.Errorf("no file: %v", err)
	}
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if left, err := os.ReadDir(filepath.Join(s.config.Dir, "tmp")); err != nil || len(left) != 0 {
		t.Errorf("left aside: %v, %v", left, err)
	}
}

// A layer that unpacks to far more than its size is given up early.
func TestBomb(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(layerOf(t, file("zeros", strings.Repeat("\x00", 20<<20))))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	from := serve(t)
	upload(t, from+"/bomb:1", made(t, nil, layerOf(t, file("zeros", strings.Repeat("\x00", 20<<20)))))
	s := open(t, func(c *Config) { c.Bounds = DefaultBounds(); c.Bounds.Slack, c.Bounds.Ratio = 1<<20, 10 })
	if _, err := s.Pull(t.Context(), from+"/bomb:1", nil); !fault.Is(err, fault.TooLarge) {
		t.Error(err)
	}
	if _, err := s.ImportArchive(t.Context(), &packed, "bomb:1", "", nil); !fault.Is(err, fault.TooLarge) {
		t.Error(err)
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

func TestNamesOfImages(t *testing.T) {
	t.Parallel()
	s, ctx := open(t), t.Context()
	root := layerOf(t, file("which", "one"))
	r, err := s.ImportArchive(ctx, bytes.NewReader(root), "one", "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.ImportArchive(ctx, bytes.NewReader(layerOf(t, file("which", "two"))), "two", "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Tag(ctx, "one", "tagged:1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Alias(ctx, "registry.example/thing", "one"); err != nil {
		t.Fatal(err)
	}
	if err := s.Alias(ctx, "chain", "registry.example/thing"); err != nil {
		t.Fatal(err)
	}
	if err := s.Alias(ctx, "one", "chain"); !fault.Is(err, fault.Conflict) {
		t.Errorf("a circle: %v", err)
	}
	if err := s.Alias(ctx, "me", "me"); !fault.Is(err, fault.Conflict) {
		t.Errorf("itself: %v", err)
	}
	if err := s.Alias(ctx, "host", "one"); !fault.Is(err, fault.Invalid) {
		t.Errorf("the host: %v", err)
	}
	for _, name := range []string{"one", "one:latest", "tagged:1", "registry.example/thing:latest", "chain", r.Digest} {
		if got := rootOf(t, s, name)["/which"]; got != "644 0 one" {
			t.Errorf("%s: %q", name, got)
		}
	}
	// An alias follows, a tag stays.
	if err := s.Tag(ctx, "two", "one"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"chain": other.Digest, "tagged:1": r.Digest} {
		if got, err := s.Find(name); err != nil || got.Digest != want {
			t.Errorf("%s: %s, %v", name, got.Digest, err)
		}
	}
	if got, err := s.FindShort(hexOf(r.Digest)[:10]); err != nil || got.Digest != r.Digest {
		t.Errorf("%v, %v", got, err)
	}
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range list {
		names = append(names, l.Name+">"+l.Follows)
		if !l.Ready {
			t.Errorf("%+v", l)
		}
	}
	if diff := cmp.Diff([]string{"chain:latest>registry.example/thing:latest", "one:latest>", "registry.example/thing:latest>one:latest", "tagged:1>", "two:latest>"}, names); diff != "" {
		t.Error(diff)
	}
	d, err := s.Inspect("tagged:1")
	if err != nil || d.Digest != r.Digest || !cmp.Equal(d.Names, []string{"tagged:1"}) || d.RootBytes == 0 {
		t.Errorf("%+v, %v", d, err)
	}
	for _, name := range []string{"nothing", "tagged:2"} {
		if err := s.Remove(ctx, name); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGC(t *testing.T) {
	t.Parallel()
	s, ctx := open(t), t.Context()
	add := func(name string) sandbox.Image {
		if _, err := s.ImportArchive(ctx, bytes.NewReader(layerOf(t, file("which", name))), name, "test", nil); err != nil {
			t.Fatal(err)
		}
		img, err := s.Resolve(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	stays, follows, goes, listed, runs := add("stays"), add("follows"), add("goes"), add("listed"), add("runs")
	if err := s.Alias(ctx, "alias", follows.Digest); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"goes", "listed", "runs", "follows"} {
		if err := s.Remove(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(runs.Root) // as its sandbox has
	if err != nil {
		t.Fatal(err)
	}
	dry, err := s.GC(ctx, []string{listed.Root}, true)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.GC(ctx, []string{listed.Root}, false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(dry, got); diff != "" || len(got.Images) != 3 || got.Roots != 1 || got.InUse != 2 || got.Blobs != 9 || got.Bytes == 0 {
		t.Errorf("%+v %s", got, diff)
	}
	for root, there := range map[string]bool{stays.Root: true, follows.Root: true, goes.Root: false, listed.Root: true, runs.Root: true} {
		if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) == there {
			t.Errorf("%s: %v", root, err)
		}
	}
	_ = f.Close()
	if got, err := s.GC(ctx, nil, false); err != nil || got.Roots != 2 || got.InUse != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if got := rootOf(t, s, "stays")["/which"]; got != "644 0 stays" {
		t.Error(got)
	}
}

// Another guest means other roots, made from the same blobs.
func TestNewGuest(t *testing.T) {
	t.Parallel()
	s := open(t)
	if _, err := s.ImportArchive(t.Context(), bytes.NewReader(layerOf(t, file("a", "1"))), "x", "test", nil); err != nil {
		t.Fatal(err)
	}
	before, err := s.Resolve(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	c := s.config
	c.Guest = guestFile(t, "another guest")
	next, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	after, err := next.Resolve(t.Context(), "x")
	if err != nil || after.Root == before.Root {
		t.Fatal(after, err)
	}
	if got := look(t, after.Root)["/.aurea/guest"]; got != "555 0 another guest" {
		t.Error(got)
	}
	if got, err := next.GC(t.Context(), nil, false); err != nil || got.Roots != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.WriteFile(c.Guest, []byte("replaced"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(after.Root); err != nil {
		t.Fatal(err)
	}
	if _, err := next.Resolve(t.Context(), "x"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a guest that is not the one whose name the root has: %v", err)
	}
	c.Guest = ""
	none, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := none.Resolve(t.Context(), "x"); !fault.Is(err, fault.Unavailable) {
		t.Error(err)
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

// A crash while something is written leaves files aside, which the next start
// removes unless their writer lives; no name leads to half an image.
func TestCrash(t *testing.T) {
	t.Parallel()
	s := open(t)
	live, err := s.aside()
	if err != nil {
		t.Fatal(err)
	}
	defer live.drop()
	dead := filepath.Join(s.config.Dir, "tmp", "new-dead")
	if err := os.WriteFile(dead, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(s.config); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); !errors.Is(err, fs.ErrNotExist) {
		t.Error("what the dead left is there")
	}
	if _, err := os.Stat(live.Name()); err != nil {
		t.Error("what the living write is gone")
	}
	// A pull that is cut off at any byte of its blobs.
	from := serve(t)
	upload(t, from+"/tool:1", twoLayers(t))
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, err := s.Pull(ctx, from+"/tool:1", func(step Step) {
		if step.Doing == "unpack" {
			cancel(errStopped)
		}
	}); !errors.Is(err, errStopped) {
		t.Errorf("a pull that was cut off: %v", err)
	}
	if _, err := s.Find(from + "/tool:1"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if roots, err := os.ReadDir(filepath.Join(s.config.Dir, "roots")); err != nil || len(roots) != 0 {
		t.Error(roots, err)
	}
	if _, err := s.Pull(t.Context(), from+"/tool:1", nil); err != nil {
		t.Error(err)
	}
}

// kill -9 of a process that imports, at many moments.
func TestKilledImport(t *testing.T) {
	t.Parallel()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := open(t)
	for moment := range 6 {
		cmd := exec.Command(own, "-test.run=^TestVictim$")
		cmd.Env = append(os.Environ(), "AUREA_TEST_IMAGES="+s.config.Dir, "AUREA_TEST_GUEST="+s.config.Guest, fmt.Sprintf("AUREA_TEST_MOMENT=%d", moment))
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Fatalf("the victim lives: %s", out)
		}
		if _, err := Open(s.config); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(filepath.Join(s.config.Dir, "tmp")); err != nil || len(left) != 0 {
			t.Errorf("moment %d: %v, %v", moment, left, err)
		}
		list, err := s.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list {
			if got := rootOf(t, s, l.Name)["/big"]; len(got) != len("644 0 ")+4<<20 {
				t.Errorf("moment %d: %s has %d bytes", moment, l.Name, len(got))
			}
		}
	}
}

// TestVictim is the process that is killed.
func TestVictim(t *testing.T) {
	folder := os.Getenv("AUREA_TEST_IMAGES")
	if folder == "" {
		t.Skip("it is run by TestKilledImport")
	}
	var moment, steps int
	_, _ = fmt.Sscan(os.Getenv("AUREA_TEST_MOMENT"), &moment)
	s, err := Open(Config{Dir: folder, Guest: os.Getenv("AUREA_TEST_GUEST"), Architecture: "amd64", Host: testHost(t)})
	if err != nil {
		t.Fatal(err)
	}
	noise := bytes.Repeat([]byte(fmt.Sprintf("%d and more ", moment)), 4<<20/11+1)[:4<<20]
	_, err = s.ImportArchive(t.Context(), bytes.NewReader(layerOf(t, file("big", string(noise)))), "victim", "test", func(Step) {
		if steps++; steps > moment*2 {
			die()
		}
	})
	fmt.Println(err)
	die()
}

func die() {
	p, _ := os.FindProcess(os.Getpid())
	_ = p.Kill()
	select {}
}

func TestDamagedIndex(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "{", `{"version":2}`, `{"version":1,"images":null}`, "null"} {
		s := open(t)
		if err := os.WriteFile(s.indexPath(), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.List(); err == nil {
			t.Errorf("%q was read", body)
		}
		if err := s.Tag(t.Context(), "a", "b"); err == nil {
			t.Errorf("%q was changed", body)
		}
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"version":1,"images":{},"names":{"a:b":"sha256:x"},"aliases":{"c:d":"a:b","a:b":"c:d"}}`))
	f.Fuzz(func(_ *testing.T, body []byte) {
		if i, err := parseIndex(body); err == nil {
			for name := range i.Names {
				_, _ = i.find(name)
			}
			for name := range i.Aliases {
				_, _ = i.find(name)
			}
		}
	})
}

func TestConfigurations(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"[]", `{"config":{"Env":["novalue"]}}`, `{"config":{"Env":["=x"]}}`, `{"config":{"Env":["A=\u0000"]}}`, `{"config":{"User":"\u0000"}}`} {
		if _, err := parseDocument([]byte(body)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", body, err)
		}
	}
	many, err := json.Marshal(map[string]any{"config": map[string]any{"Env": strings.Split(strings.Repeat("A=b,", 600)+"A=b", ",")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseDocument(many); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
}

var _ io.Reader = patient{}
