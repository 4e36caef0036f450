package image

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/klauspost/compress/gzip"

	"github.com/aurea-dev/aurea/internal/fault"
)

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
	if got := rootOf(t, s, "root:1"); got["/bin/sh"] != "644 0 a shell" || got["/.aurea"] != "755 0 /" {
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
