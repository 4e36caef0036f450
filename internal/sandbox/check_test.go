package sandbox

import (
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
)

func TestSpecsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for field, s := range map[string]Spec{
		"id":                  {ID: "Upper"},
		"limits.milli_cpu":    {ID: "a", Limits: Limits{MilliCPU: -1}},
		"limits.memory_bytes": {ID: "a", Limits: Limits{Memory: -1}},
		"limits.processes":    {ID: "a", Limits: Limits{Processes: -1}},
		"limits.disk_bytes":   {ID: "a", Limits: Limits{Disk: -1}},
		"limits.open_files":   {ID: "a", Limits: Limits{OpenFiles: -1}},
		"network":             {ID: "a", Network: "everything"},
		"image":               {ID: "a", Image: "a\x00b"},
		"env":                 {ID: "a", Env: map[string]string{"A=B": ""}},
		"env.A":               {ID: "a", Env: map[string]string{"A": "\x00"}},
	} {
		wantField(t, field, s.Validate())
	}
	for field, s := range map[string]ExecSpec{
		"id":      {ID: "a/b", Command: []string{"a"}},
		"command": {ID: "a", Command: []string{""}},
		"dir":     {ID: "a", Command: []string{"a"}, Dir: "relative"},
		"env":     {ID: "a", Command: []string{"a"}, Env: map[string]string{"": ""}},
	} {
		wantField(t, field, s.Validate())
	}
	if err := (ExecSpec{ID: strings.Repeat("Aa-0", 16), Command: []string{"a", ""}, Dir: "/"}).Validate(); err != nil {
		t.Error(err)
	}
}

func wantField(t *testing.T, field string, err error) {
	t.Helper()
	if !fault.Is(err, fault.Invalid) || !strings.HasPrefix(err.Error(), field+":") {
		t.Errorf("%v, want an invalid %s", err, field)
	}
}

func TestWhatCannotBeEnforcedIsRefused(t *testing.T) {
	t.Parallel()
	bare := Capabilities{Networks: []Network{NetworkNone}}
	for code, specs := range map[string][]Spec{
		"limit_unenforceable": {
			{Limits: Limits{MilliCPU: 1}},
			{Limits: Limits{Memory: 1}},
			{Limits: Limits{Processes: 1}},
			{Limits: Limits{Disk: 1}},
			{Limits: Limits{OpenFiles: 1}},
		},
		"network_unenforceable": {{Network: NetworkFull}, {Network: NetworkAllowlist}, {Network: NetworkController}},
		"snapshot_unsupported":  {{Restore: "/somewhere"}},
	} {
		for _, s := range specs {
			if err := bare.Check(s); !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != code {
				t.Errorf("%+v: %v, want %s", s, err, code)
			}
		}
	}
	if err := bare.Check(Spec{}); err != nil {
		t.Error(err)
	}
	if err := (Capabilities{Networks: []Network{NetworkFull}}).Check(Spec{}); fault.CodeOf(err) != "network_unenforceable" {
		t.Errorf("a driver that always has a network took a spec that asks for none: %v", err)
	}
}
