package dispatchtest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/dispatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReference(t *testing.T) {
	t.Parallel()
	Run(t, Harness{New: func(*testing.T) (dispatch.Manager, Control) {
		r := NewReference()
		return r, r
	}})
}
