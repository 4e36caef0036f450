package sandbox

import (
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
)

func TestStateMachine(t *testing.T) {
	t.Parallel()
	legal := map[string]bool{
		"PENDING>CREATING": true, "CREATING>RUNNING": true, "RUNNING>COMPLETING": true, "COMPLETING>COMPLETED": true,
		"PENDING>COMPLETED": true, "CREATING>COMPLETED": true, "RUNNING>COMPLETED": true,
		"PENDING>FAILED": true, "CREATING>FAILED": true, "RUNNING>FAILED": true, "COMPLETING>FAILED": true,
	}
	for _, from := range append(States(), "", "NONSENSE") {
		for _, to := range append(States(), "", "NONSENSE") {
			got, err := from.To(to)
			if legal[string(from+">"+to)] {
				if err != nil || got != to {
					t.Errorf("%s to %s: %s, %v", from, to, got, err)
				}
				continue
			}
			if !fault.Is(err, fault.Conflict) || got != from {
				t.Errorf("%s to %s: %s, %v, want a conflict and no move", from, to, got, err)
			}
		}
	}
}

func TestDemandNamesTheStates(t *testing.T) {
	t.Parallel()
	if err := StateRunning.Demand("start", StateCreating, StateRunning); err != nil {
		t.Error(err)
	}
	err := StateFailed.Demand("start a process", StateRunning)
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "cannot start a process: the sandbox is FAILED, not RUNNING") {
		t.Error(err)
	}
}

func TestOutcomesEndInFinalStates(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[Outcome]State{
		OutcomeDone: StateCompleted, OutcomeCancelled: StateCompleted, OutcomeExpired: StateCompleted,
		OutcomeKilled: StateFailed, OutcomeReaped: StateFailed, OutcomeLost: StateFailed, OutcomeUncleaned: StateFailed,
		"unheard of": StateFailed,
	} {
		if got := outcome.State(); got != want {
			t.Errorf("%s ends %s, want %s", outcome, got, want)
		}
	}
}

func TestDiagramDrawsEveryMove(t *testing.T) {
	t.Parallel()
	want := `stateDiagram-v2
    [*] --> PENDING
    PENDING --> CREATING
    PENDING --> COMPLETED
    PENDING --> FAILED
    CREATING --> RUNNING
    CREATING --> COMPLETED
    CREATING --> FAILED
    RUNNING --> COMPLETING
    RUNNING --> COMPLETED
    RUNNING --> FAILED
    COMPLETING --> COMPLETED
    COMPLETING --> FAILED
    COMPLETED --> [*]
    FAILED --> [*]
`
	if got := Diagram(); got != want {
		t.Errorf("got\n%s", got)
	}
}
