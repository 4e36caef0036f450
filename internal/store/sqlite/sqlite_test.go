package sqlite_test

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Database {
		t.Helper()
		path := filepath.Join(t.TempDir(), "aurea.db")
		return func() store.Store { return openFile(t, path) }
	})
}
