package docker_test

import (
	"fmt"
	"testing"

	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func TestContract(t *testing.T) {
	needEngine(t)
	drivertest.Run(t, drivertest.Harness{
		Open:  func(t *testing.T, folder string) sandbox.Driver { return open(t, folder) },
		Alive: drivertest.ProcAlive,
		OOM: func(limit int64) sandbox.ExecSpec {
			return sandbox.ExecSpec{ID: "greedy", Command: []string{"python3", "-c", fmt.Sprintf("b = bytearray(%d)\nfor i in range(0, len(b), 4096): b[i] = 1", 2*limit)}}
		},
		Kernel: true,
		Echo:   drivertest.Echo,
	})
}
