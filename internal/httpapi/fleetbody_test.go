package httpapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/manifest"
)

// A root's paper says that it has no parent, and every paper says whether it may
// reach others; both may be left out of what is sent.
func TestManifestNamesWhatIsNot(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(ManifestBody{WorkerID: "w1", Resources: resourcesBody(manifest.Resources{CPULimit: 1, MemoryLimitMB: 1})})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"parent_id":null`, `"allow_external":false`, `"allow_controller":false`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s does not say %s", text, part)
		}
	}
	for _, parent := range []string{`"parent_id":null,`, ``} {
		var b ManifestBody
		body := `{"worker_id":"w1",` + parent + `"depth":0,"issued_at":"2026-01-01T00:00:00Z","resources":{"cpu_limit":0.5,"memory_limit_mb":256,"network_policy":{}},"signature":"signed"}`
		if err := bind([]byte(body), &b); err != nil || b.ParentID != nil {
			t.Errorf("%s: %+v, %v", body, b, err)
		}
	}
}
