package e2e

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestAManagerThatDiesInAnUpload kills a manager with -9 while files go into a
// sandbox. The client is told, nothing that looks like a whole file is left of
// the one that was under way, and it can be sent again.
func TestAManagerThatDiesInAnUpload(t *testing.T) {
	p := newPair(t, "AUREA_POOL=")
	var x box
	eventually(t, "a sandbox is made", func() (bool, string) {
		err := p.post(t.Context(), "/api/v1/sandboxes", map[string]any{}, &x)
		return err == nil, fmt.Sprint(err)
	})
	base := "/api/v1/sandboxes/" + x.ID
	there := func() string {
		a, err := p.ask(t.Context(), http.MethodPost, base+"/execs?wait=10", []byte(`{"shell":"ls -A up; exit 0"}`))
		var e struct{ Stdout struct{ Text string } }
		if err != nil || a.into(http.StatusCreated, &e) != nil {
			return fmt.Sprintf("%s, %v", a, err)
		}
		return strings.TrimSpace(e.Stdout.Text)
	}
	for _, path := range []string{"/tar?path=/workspace/up", "/files/content?path=/workspace/up/big"} {
		const size = 256 << 20
		var head bytes.Buffer
		if strings.HasPrefix(path, "/tar") {
			if err := tar.NewWriter(&head).WriteHeader(&tar.Header{Name: "big", Mode: 0o644, Size: size}); err != nil {
				t.Fatal(err)
			}
		}
		body, feed := io.Pipe()
		told := make(chan error, 1)
		go func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, p.base+base+path, body)
			if err == nil {
				req.Header.Set("Content-Type", "application/octet-stream")
				var res *http.Response
				if res, err = p.http.Do(req); err == nil {
					err = fmt.Errorf("answered %d", res.StatusCode)
					_ = res.Body.Close()
				}
			}
			_ = body.CloseWithError(err)
			told <- err
		}()
		go func() { // a part, and never the end
			_, _ = feed.Write(append(head.Bytes(), make([]byte, 1<<20)...))
		}()
		eventually(t, "the file is on its way", func() (bool, string) { seen := there(); return seen != "", seen })
		if err := p.manager.kill(); err != nil {
			t.Fatal(err)
		}
		_ = feed.CloseWithError(errCut) // the client waits for its own reader
		if err := <-told; err == nil || strings.HasPrefix(err.Error(), "answered 2") {
			t.Errorf("the client was told %v", err)
		}
		p.startManager()
		eventually(t, "nothing is left of it", func() (bool, string) { seen := there(); return seen == "", seen })
	}
	if a, err := p.ask(t.Context(), http.MethodPut, base+"/files/content?path=/workspace/up/big", []byte("whole"), "Content-Type", "application/octet-stream"); err != nil || a.status >= 300 {
		t.Errorf("again: %s, %v", a, err)
	}
	if seen := there(); seen != "big" {
		t.Errorf("after it there is %q", seen)
	}
	if a, err := p.ask(t.Context(), http.MethodDelete, base, nil); err != nil || a.status != http.StatusOK {
		t.Errorf("delete: %s, %v", a, err)
	}
}
