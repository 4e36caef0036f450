package cli_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/cli"
	"github.com/aurea-dev/aurea/internal/doctor"
)

func examined(works bool) cli.Program {
	return cli.Program{
		Doctor: func(context.Context, cli.Start) doctor.Report {
			return doctor.Report{Drivers: []doctor.Driver{{
				Name: "gvisor", Chosen: true, Works: works,
				Findings: []doctor.Finding{{Name: "root", Level: doctor.Lack, Found: "no\x1b[2J", Cost: "nothing works", Remedy: "be root"}},
			}}}
		},
		Diagnose: func(_ context.Context, _ cli.Start, logs []string, w io.Writer) error {
			if len(logs) > 1 {
				return errors.New("too many")
			}
			_, err := io.WriteString(w, "bundle")
			return err
		},
	}
}

func TestDoctorSaysItByItsExitCode(t *testing.T) {
	t.Parallel()
	for works, want := range map[bool]int{true: cli.ExitOK, false: cli.ExitFailed} {
		for _, args := range [][]string{{"doctor"}, {"doctor", "--json"}} {
			var out, errs bytes.Buffer
			code := cli.Run(t.Context(), examined(works), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, nil)
			if code != want || errs.Len() > 0 || !strings.Contains(out.String(), "be root") || strings.Contains(out.String(), "\x1b") {
				t.Errorf("%v, works %v: code %d, %q, %q", args, works, code, out.String(), errs.String())
			}
		}
	}
}

func TestDiagnoseWritesANewFileOrNone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "b.tar.gz")
	run := func(args ...string) int {
		return cli.Run(t.Context(), examined(true), append([]string{"diagnose", "-o", path}, args...), cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}, nil)
	}
	if code := run("--log", "a", "--log", "b"); code == cli.ExitOK {
		t.Error("a bundle that failed is a success")
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("half a bundle is left")
	}
	if code := run(); code != cli.ExitOK {
		t.Errorf("code %d", code)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if code := run(); code == cli.ExitOK {
		t.Error("it was written over")
	}
}
