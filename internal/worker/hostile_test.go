package worker_test

import (
	"archive/tar"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// Code names its files as it likes. A name that no artifact can have costs that
// artifact and nothing else: the result, its output and its snapshot stand.
func TestHostileArtifactNames(t *testing.T) {
	bad := []string{
		"artifacts/new\nline", "artifacts/\x1b[31mred", "artifacts/tab\t", "artifacts/del\x7f", "artifacts/nel\u0085",
		"artifacts/back\\slash", "artifacts/\xff\xfe", "artifacts/cr\r",
	}
	good := []string{"artifacts/-rf", "artifacts/..  ", "artifacts/$(id)", "artifacts/%2e%2e%2f", "artifacts/<b>"}
	var headers []tar.Header
	for _, name := range append(slices.Clone(bad), good...) {
		headers = append(headers, tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 3, Format: tar.FormatGNU})
	}
	data := tarOf(t, headers...)
	story(t, func(c *worker.Config) {
		c.Drivers = map[string]sandbox.Driver{"fake": &counting{Driver: c.Drivers["fake"], hostile: data}}
	}, func(t *testing.T, s *stand) {
		id := s.submit(`{}`)
		synctest.Wait()
		res, d := s.result(id)
		if !res.Success || res.Record.Snapshot == nil {
			t.Fatalf("%s", res.Details)
		}
		got := names(res)[3:] // behind those that every job has
		slices.Sort(got)
		slices.Sort(good)
		if diff := cmp.Diff(good, got); diff != "" {
			t.Error(diff)
		}
		if len(res.Record.Skipped) != len(bad) {
			t.Errorf("skipped %q", res.Record.Skipped)
		}
		if n := len(s.files(d.Snapshot)); n != len(bad)+len(good)+2 { // two folders
			t.Errorf("the snapshot has %d entries", n)
		}
	})
}

// The files of a command that failed are evidence too: where they cannot be
// had, the record says so.
func TestMissingFilesOfAFailureAreNamed(t *testing.T) {
	story(t, func(c *worker.Config) {
		c.Drivers = map[string]sandbox.Driver{"fake": &counting{Driver: c.Drivers["fake"], hostile: []byte(strings.Repeat("nonsense ", 1000))}}
	}, func(t *testing.T, s *stand) {
		id := s.submit(payload("exec", map[string]any{"command": []string{"false"}}))
		synctest.Wait()
		res, d := s.result(id)
		if res.Success || d.ExitCode != 1 {
			t.Fatalf("%s", res.Details)
		}
		if len(res.Record.Skipped) != 1 || !strings.HasPrefix(res.Record.Skipped[0], "the rest of the workspace: ") {
			t.Errorf("skipped %q", res.Record.Skipped)
		}
	})
}

func TestTooManyArtifactsAreNamed(t *testing.T) {
	var headers []tar.Header
	for i := range dispatch.MaxArtifacts + 5 {
		headers = append(headers, tar.Header{Name: fmt.Sprintf("artifacts/%04d", i), Typeflag: tar.TypeReg})
	}
	data := tarOf(t, headers...)
	story(t, func(c *worker.Config) {
		c.Drivers = map[string]sandbox.Driver{"fake": &counting{Driver: c.Drivers["fake"], hostile: data}}
	}, func(t *testing.T, s *stand) {
		id := s.submit(`{}`)
		synctest.Wait()
		res, _ := s.result(id)
		if !res.Success || len(res.Artifacts) > dispatch.MaxArtifacts || len(res.Record.Skipped) != 1 ||
			!strings.Contains(res.Record.Skipped[0], "15 more") {
			t.Errorf("%d artifacts, skipped %q, %s", len(res.Artifacts), res.Record.Skipped, res.Details)
		}
	})
}
