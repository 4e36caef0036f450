//go:build !race

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/runsc/boot/filter/config"
)

// A program that was made ahead must be, instruction by instruction, the one
// that the gVisor module would build in the same process: an upgrade of the
// module without go generate would run sandboxes behind an old filter.
//
// The race detector changes the filter, so that this holds in other builds.
func TestSeccompProgramsAreTheModules(t *testing.T) {
	t.Parallel()
	ours := precompiled()
	if ours == nil {
		t.Skip("no programs are made ahead for this architecture; the sentry builds its own")
	}
	systrap, err := platform.Lookup("systrap")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, info := range systrap.PrecompiledSeccompInfo() {
		for _, files := range []bool{true, false} {
			opt := config.Options{Platform: info, HostFilesystem: files, ControllerFD: 17}
			allow, deny := config.Rules(opt)
			reference := &seccomp.Program{
				RuleSets: []seccomp.RuleSet{{Rules: deny}, {Rules: allow, Action: seccomp.Allow}},
				Options:  config.SeccompOptions(opt),
			}
			want, _, err := reference.Build()
			if err != nil {
				t.Fatal(err)
			}
			program, ok := ours[opt.ConfigKey()]
			if !ok {
				t.Fatalf("no program for %s", opt.ConfigKey())
			}
			got, err := program.RenderInstructions(opt.Vars())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s differs; run go generate ./cmd/aurea-sentry\n%s", opt.ConfigKey(), diff)
			}
			checked++
		}
	}
	if checked != len(ours) {
		t.Errorf("%d programs were checked of %d", checked, len(ours))
	}
}
