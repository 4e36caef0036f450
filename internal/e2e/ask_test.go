package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// asker is an HTTP client that knows nothing of ours.
type asker struct {
	base string
	http *http.Client
}

func newAsker(t *testing.T, base string) *asker {
	t.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(tr.CloseIdleConnections)
	return &asker{base: base, http: &http.Client{Transport: tr}}
}

// answer is a whole answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// problem is the code of a problem.
func (a answer) problem() string {
	var p struct{ Code string }
	_ = json.Unmarshal(a.body, &p) // anything else has no code
	return p.Code
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, bytes.TrimSpace(a.body)) }

// into reads the answer, which must have this status.
func (a answer) into(status int, v any) error {
	if a.status != status {
		return fmt.Errorf("want %d, got %s", status, a)
	}
	return json.Unmarshal(a.body, v)
}

// slow is how long a request may take, as the first workers had it.
const slow = 15 * time.Second

// ask makes one request. An error means that nobody knows whether it was done.
func (k *asker) ask(ctx context.Context, method, path string, body []byte, header ...string) (answer, error) {
	patience := slow
	if strings.Contains(path, "wait=60") { // it is asked to take that long
		patience += time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return k.insist(ctx, method, path, body, header...)
}

// insist is ask that waits for as long as ctx lasts.
func (k *asker) insist(ctx context.Context, method, path string, body []byte, header ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, k.base+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := k.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	all, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, all}, err
}

// get reads a JSON document.
func (k *asker) get(ctx context.Context, path string, v any) error {
	a, err := k.ask(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return a.into(http.StatusOK, v)
}

// pause waits, and reports whether ctx lasted.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// eventually asks until the condition holds.
func eventually(t *testing.T, what string, holds func() (bool, string)) {
	t.Helper()
	seen := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		ok, now := holds()
		if ok {
			return
		}
		seen = now
		pause(t.Context(), 50*time.Millisecond)
	}
	t.Fatalf("%s: not after %v; last seen: %s", what, patience, seen)
}
