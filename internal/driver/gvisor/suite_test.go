package gvisor_test

import (
	"testing"

	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func TestContract(t *testing.T) {
	needRoot(t)
	drivertest.Run(t, drivertest.Harness{
		Open:  func(t *testing.T, folder string) sandbox.Driver { return open(t, folder) },
		Alive: drivertest.ProcAlive,
		OOM: func(limit int64) sandbox.ExecSpec {
			spec := hungry(int(2 * limit >> 20))
			spec.ID = "greedy"
			return spec
		},
		Kernel: true,
		Echo:   drivertest.Echo,
	})
}
