package app

import (
	"math"
	"testing"

	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// TestSandboxesAreBounded refuses limits that no machine can keep: the kernel
// would, and the caller would read of a failure of ours.
func TestSandboxesAreBounded(t *testing.T) {
	t.Parallel()
	terms := sandboxTerms(&config.Config{}).Terms
	for name, asked := range map[string]sandbox.Limits{
		"disk":       {Disk: math.MaxInt64},
		"processes":  {Processes: 4194304},
		"open files": {OpenFiles: 1<<20 + 1},
	} {
		r := live.Request{Spec: live.Spec{Limits: asked}}
		if err := r.Check(terms); !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != "over_limit" {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := live.Request{Spec: live.Spec{Limits: sandbox.Limits{Disk: 64 << 30, Processes: 4096, OpenFiles: 1 << 20}}}
	if err := r.Check(terms); err != nil {
		t.Errorf("the most: %v", err)
	}
}
