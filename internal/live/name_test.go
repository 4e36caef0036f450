package live_test

import (
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
)

// TestNames takes those by which a sandbox can be called afterwards.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "demo", "session-a.b_c-1", "machine-0123456789abcd-2", "fleet-0a1b2c3d", "...", ".hidden", "büro", "a b", "user/7:task", strings.Repeat("n", live.MaxName)} {
		if err := live.CheckName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{".", "..", "a\nb", "\u202e", "\xff", strings.Repeat("n", live.MaxName+1)} {
		r := live.Request{Name: bad}
		if err := r.Check(live.Terms{}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
