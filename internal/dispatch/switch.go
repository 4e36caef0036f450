package dispatch

import (
	"context"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/killswitch"
)

// Stopper is the part of the worker's end that the kill switch pulls. A worker
// that lacks it learns the state from Welcome and from each ExtendAnswer, as any
// other that a command did not reach.
type Stopper interface {
	// Switch brings everything at the worker to a state, and returns when the last
	// that is to die is dead and the last that is to stand still does. A state
	// that is older than the one that holds changes nothing.
	Switch(ctx context.Context, s killswitch.State) (killswitch.Done, error)
}

// MaxTripped bounds how many switches a worker tells of at a time that were
// tripped at its machine.
const MaxTripped = 16

// CheckDone refuses what no worker can have done.
func CheckDone(d killswitch.Done) error {
	if d.Killed < 0 || d.Frozen < 0 || d.Resumed < 0 || d.Failed < 0 {
		return fault.Field("", "must not be negative")
	}
	return checkText("problem", d.Problem, maxText)
}

func checkTripped(all []killswitch.Switch) error {
	if err := checkCount("tripped", len(all), MaxTripped); err != nil {
		return err
	}
	for i := range all {
		if err := all[i].Check(); err != nil {
			return within(at("tripped", i), err)
		}
		if err := checkWord(at("tripped", i)+".id", all[i].ID); err != nil {
			return err
		}
	}
	return nil
}
