package s3_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/blob/s3"
)

// TestATokenIsNotSaid reaches for a bucket that refuses a token and says it again.
func TestATokenIsNotSaid(t *testing.T) {
	t.Parallel()
	const token = "a-token-of-a-session"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		if r.Method != http.MethodHead {
			_, _ = fmt.Fprintf(w, "<Error><Code>InvalidToken</Code><Message>%s is not good</Message></Error>", r.Header.Get("X-Amz-Security-Token"))
		}
	}))
	defer server.Close()
	path := true
	err := s3.Reach(t.Context(), s3.Config{Bucket: "bucket", Endpoint: server.URL, PathStyle: &path, AccessKey: "a", SecretKey: "s", SessionToken: token})
	if err == nil || strings.Contains(err.Error(), token) || !strings.Contains(err.Error(), "is not good") {
		t.Errorf("it says %v", err)
	}
}
