package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/build"
	"github.com/aurea-dev/aurea/internal/httpapi"
)

func TestBuildImage(t *testing.T) {
	t.Parallel()
	d := open(t)
	var got httpapi.BuiltBody
	d.ask("POST", "/build-image", "").into(200, &got)
	if got.Image != "aurea-sandbox:latest" || !strings.Contains(got.Message, "aurea-sandbox:latest") || len(got.Digest) != 71 {
		t.Errorf("got %+v", got)
	}
	d.ask("POST", "/api/v1/build-image", `{"dockerfile":"node-expo","image":"x:1","args":{"BASE":"b"},"fresh":true,"worker":"w"}`).into(200, &got)
	want := builtBy{worker: "w", order: build.Order{Name: "node-expo", Tag: "x:1", Args: map[string]string{"BASE": "b"}, Fresh: true}}
	if diff := cmp.Diff(want, d.last, cmp.AllowUnexported(builtBy{})); diff != "" {
		t.Error(diff)
	}
	p := d.ask("POST", "/build-image", `{"image":"fail"}`).problem(422)
	if p.Code != "build_failed" || !strings.Contains(p.Detail, "line 4") {
		t.Errorf("got %+v", p)
	}
	for _, bad := range []string{`{"dockerfile":"../x"}`, `{"args":{"A B":"x"}}`, `{"args":{"A":"x\ny"}}`, `{"image":"` + strings.Repeat("x", 300) + `"}`} {
		d.untouched(bad, func() { d.ask("POST", "/build-image", bad).problem(422) })
	}
}

func TestBuildImageFromAnArchive(t *testing.T) {
	t.Parallel()
	d := open(t)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte("archive"))
	_ = z.Close()
	for kind, body := range map[string]string{"application/x-tar": "archive", "application/gzip": packed.String()} {
		d.ask("POST", "/build-image?image=x:1&dockerfile=a/Dockerfile&arg=BASE=b&arg=C=d=e&fresh=true&worker=w", body, "Content-Type", kind).into(200, &httpapi.BuiltBody{})
		want := builtBy{"w", build.Order{Tag: "x:1", Dockerfile: "a/Dockerfile", Args: map[string]string{"BASE": "b", "C": "d=e"}, Fresh: true, Uploaded: true}, body}
		if diff := cmp.Diff(want, d.last, cmp.AllowUnexported(builtBy{})); diff != "" {
			t.Error(diff)
		}
	}
	for _, bad := range []string{"?image=x&arg=BASE", "?image=x&dockerfile=../Dockerfile", "?image=x&arg=A+B=x"} {
		d.untouched(bad, func() { d.ask("POST", "/build-image"+bad, "archive", "Content-Type", "application/x-tar").problem(422) })
	}
	d.untouched("a query without an archive", func() { d.ask("POST", "/build-image?image=x", "{}").problem(422) })
}

func TestABuildIsTold(t *testing.T) {
	t.Parallel()
	d := open(t)
	digest := "sha256:" + strings.Repeat("0a", 32)
	first, second := `{"doing":"build","line":3,"number":1,"of":2,"text":"FROM base"}`, `{"doing":"build","line":4,"number":2,"of":2,"text":"RUN true"}`
	result := `{"message":"Image aurea-sandbox:latest built successfully","image":"aurea-sandbox:latest","digest":"` + digest + `","size":7}`
	for kind, want := range map[string]string{
		"application/x-ndjson": `{"step":` + first + "}\n" + `{"step":` + second + "}\n" + `{"result":` + result + "}\n",
		"text/event-stream":    "event: step\ndata: " + first + "\n\nevent: step\ndata: " + second + "\n\nevent: result\ndata: " + result + "\n\n",
	} {
		a := d.ask("POST", "/build-image", "{}", "Accept", kind)
		if a.Code != 200 || a.Header.Get("Content-Type") != kind {
			t.Errorf("%s: %d, %s", kind, a.Code, a.Header.Get("Content-Type"))
		}
		if diff := cmp.Diff(want, a.Body); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
	a := d.ask("POST", "/build-image", `{"image":"fail"}`, "Accept", "application/x-ndjson")
	if lines := strings.Split(strings.TrimSpace(a.Body), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[1], `{"problem":{`) || !strings.Contains(lines[1], `"code":"build_failed"`) {
		t.Errorf("got %s", a.Body)
	}
}
