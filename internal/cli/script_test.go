package cli

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/images"
	"github.com/aurea-dev/aurea/internal/build/engine"
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/image"
)

var update = flag.Bool("update", false, "rewrite what the scripts expect")

func TestMain(m *testing.M) {
	testscript.Main(leakless{m}, map[string]func(){
		"aurea": func() {
			os.Exit(Main(Program{
				OpenAPI: func() ([]byte, error) { return []byte("openapi: 3.1.0\n"), nil },
				Images: func(cfg *config.Config) (*image.Store, error) {
					return image.Open(image.Config{Dir: cfg.ImageDir(), Architecture: "amd64", Insecure: cfg.InsecureRegistries})
				},
				Builds: func(cfg *config.Config) (Builder, error) {
					return engine.New(engine.Config{Host: cfg.DockerHost, Default: "aurea-sandbox:latest", Shipped: images.Files(), Folder: cfg.Dockerfiles}), nil
				},
			}, os.Args[1:], StandardStreams()))
		},
	})
}

// leakless looks for goroutines that the tests left behind.
type leakless struct{ testscript.TestingM }

func (l leakless) Run() int {
	code := l.TestingM.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// The scripts are the manual: each tells what a person types and sees, against
// a server that answers from memory.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			s := newServer()
			e.Defer(s.Close)
			e.Setenv("AUREA_SERVER", s.URL)
			e.Setenv("HOME", e.WorkDir)
			return nil
		},
	})
}
