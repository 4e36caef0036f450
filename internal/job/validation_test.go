package job_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
)

func TestValidationCheckNamesTheField(t *testing.T) {
	t.Parallel()
	good := func() job.Validation {
		return job.Validation{WorkerID: "v", Ticks: []job.Tick{{Type: "tests", Passed: true}}, Confidence: 0.5}
	}
	if err := good().Check(); err != nil {
		t.Fatal(err)
	}
	for field, spoil := range map[string]func(*job.Validation){
		"worker_id":          func(v *job.Validation) { v.WorkerID = " " },
		"confidence":         func(v *job.Validation) { v.Confidence = math.NaN() },
		"ticks":              func(v *job.Validation) { v.Ticks = nil },
		"ticks[0].tick_type": func(v *job.Validation) { v.Ticks[0].Type = "" },
		"ticks[0].note":      func(v *job.Validation) { v.Ticks[0].Note = strings.Repeat("x", job.MaxNote+1) },
	} {
		v := good()
		spoil(&v)
		var f *fault.Error
		if err := v.Check(); !errors.As(err, &f) || f.Kind != fault.Invalid || f.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestValidationPasses(t *testing.T) {
	t.Parallel()
	pass, fail := job.Tick{Type: "a", Passed: true}, job.Tick{Type: "b"}
	for _, c := range []struct {
		ticks      []job.Tick
		confidence float64
		want       bool
	}{
		{[]job.Tick{pass}, 0.7, true},
		{[]job.Tick{pass, pass}, 1, true},
		{[]job.Tick{pass}, 0.69, false},
		{[]job.Tick{pass, fail}, 1, false},
		{nil, 1, false},
	} {
		if got := (job.Validation{Ticks: c.ticks, Confidence: c.confidence}).Passes(); got != c.want {
			t.Errorf("%v at %v: %v", c.ticks, c.confidence, got)
		}
	}
}
