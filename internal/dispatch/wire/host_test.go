package wire

import (
	"testing"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
)

func TestSandboxesOverTheWire(t *testing.T) {
	t.Parallel()
	dispatchtest.RunHost(t, dispatchtest.HostHarness{New: func(t *testing.T, rc dispatch.Receiver) dispatch.Host { return carried(t, rc) }})
}
