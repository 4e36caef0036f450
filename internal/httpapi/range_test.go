package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/aurea-dev/aurea/internal/httpapi"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// oneFile is a sandbox that has one file, under every path.
type oneFile struct {
	httpapi.Keeper
	sandbox.Filer
	text string
}

func (k oneFile) Files(context.Context, string) (sandbox.Filer, error) { return k, nil }

func (k oneFile) ReadFile(_ context.Context, path string, offset, length int64, w io.Writer) (sandbox.FileInfo, error) {
	size := int64(len(k.text))
	from := min(offset, size)
	to := size
	if length >= 0 {
		to = min(from+length, size)
	}
	_, err := io.WriteString(w, k.text[from:to])
	return sandbox.FileInfo{Path: path, Type: sandbox.TypeFile, Size: size}, err
}

// TestRangesOfFiles says of every range what of it was sent, and refuses one
// behind the end.
func TestRangesOfFiles(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		text, asked string
		status      int
		said, body  string
	}{
		{"hello", "", 200, "", "hello"},
		{"hello", "bytes=1-3", 206, "bytes 1-3/5", "ell"},
		{"hello", "bytes=3-", 206, "bytes 3-4/5", "lo"},
		{"hello", "bytes=3-99", 206, "bytes 3-4/5", "lo"},
		{"hello", "bytes=-2", 206, "bytes 3-4/5", "lo"},
		{"hello", "bytes=-99", 206, "bytes 0-4/5", "hello"},
		{"hello", "bytes=100-", 416, "bytes */5", ""},
		{"hello", "bytes=5-9", 416, "bytes */5", ""},
		{"hello", "bytes=9223372036854775807-", 416, "bytes */5", ""},
		{"hello", "bytes=0-9223372036854775806", 206, "bytes 0-4/5", "hello"},
		{"", "bytes=0-", 200, "", ""},
		{"", "bytes=-5", 200, "", ""},
	} {
		s := serveKeeper(t, oneFile{text: x.text})
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/v1/sandboxes/b1/files/content?path=/workspace/f", http.NoBody)
		if x.asked != "" {
			r.Header.Set("Range", x.asked)
		}
		resp, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if said := resp.Header.Get("Content-Range"); resp.StatusCode != x.status || said != x.said || x.status != 416 && string(body) != x.body {
			t.Errorf("%q of %q: %d, %q, %q", x.asked, x.text, resp.StatusCode, said, body)
		}
	}
}
