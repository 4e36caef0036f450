package wire

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Who is away is left, and not come back to while the other answers.
func TestFailoverGoesToTheNextManager(t *testing.T) {
	t.Parallel()
	var asked [2]int
	var away [2]bool
	urls := make([]string, len(asked))
	for i := range asked {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked[i]++
			if away[i] {
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
		}))
		defer srv.Close()
		urls[i] = srv.URL
	}
	f, err := NewFailover(urls, "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	call := func() error { return f.Leave(t.Context(), "session") }
	if err := call(); err != nil {
		t.Fatal(err)
	}
	first := 0
	if asked[1] > 0 {
		first = 1
	}
	away[first] = true
	if err := call(); !fault.Is(err, fault.Unavailable) {
		t.Fatalf("got %v of a manager that is away", err)
	}
	for range 3 {
		if err := call(); err != nil {
			t.Fatal(err)
		}
	}
	if asked[first] != 2 || asked[1-first] != 3 {
		t.Errorf("asked %v times, beginning with %d", asked, first)
	}
	if _, err := NewFailover(nil, "", Options{}); err == nil {
		t.Error("nobody can be asked, and that is no error")
	}
}
