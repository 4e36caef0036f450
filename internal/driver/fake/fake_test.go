package fake_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/driver/drivertest"
	"github.com/aurea-dev/aurea/internal/driver/fake"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, folder string) *fake.Driver {
	t.Helper()
	d, err := fake.New(fake.Options{StateDir: folder})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func oom(int64) sandbox.ExecSpec {
	return sandbox.ExecSpec{Command: []string{"greedy"}, Env: map[string]string{"FAKE_MEMORY": "1GB"}}
}

func echo(_ string, port uint16) sandbox.ExecSpec {
	return sandbox.ExecSpec{Command: []string{"server"}, Env: map[string]string{"FAKE_LISTEN": fmt.Sprint(port)}}
}

func TestContractOnDisk(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Harness{
		Open: func(t *testing.T, folder string) sandbox.Driver { return open(t, folder) },
		OOM:  oom,
		Echo: echo,
	})
}

func TestContractInMemory(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Harness{
		Open: func(t *testing.T, _ string) sandbox.Driver { return open(t, "") },
		OOM:  oom,
		Echo: echo,
	})
}
