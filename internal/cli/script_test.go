package cli

import (
	"flag"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

//nolint:gochecknoglobals // a test flag
var update = flag.Bool("update", false, "rewrite what the scripts expect")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"aurea": func() { os.Exit(Main(Program{OpenAPI: func() ([]byte, error) { return []byte("openapi: 3.1.0\n"), nil }}, os.Args[1:], StandardStreams())) },
	})
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
