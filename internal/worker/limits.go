package worker

import (
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// limitsFor returns the limits of a job: the worker's own, or less where the
// job asks for less. What it asks for beyond them is refused, because room was
// made for no more.
func (c Config) limitsFor(w job.Work) (sandbox.Limits, error) {
	l := c.Limits
	ask, err := w.Limits()
	if err != nil {
		return sandbox.Limits{}, err
	}
	if l.MilliCPU, err = less("cpu_limit", "thousandths of a processor", ask.MilliCPU, l.MilliCPU); err != nil {
		return sandbox.Limits{}, err
	}
	if l.Memory, err = less("memory_limit", "bytes", ask.Memory, l.Memory); err != nil {
		return sandbox.Limits{}, err
	}
	if l.CPUTime, err = less("cpu_time_limit", "nanoseconds", ask.CPUTime, l.CPUTime); err != nil {
		return sandbox.Limits{}, err
	}
	return l, nil
}

// less is what a job gets of one limit.
func less[N int64 | time.Duration](field, unit string, asked, most N) (N, error) {
	switch {
	case asked == 0:
		return most, nil
	case most > 0 && asked > most:
		return 0, fault.Field(field, "%d %s are more than this worker gives, which is %d", int64(asked), unit, int64(most)).
			WithCode("limit_too_large")
	}
	return asked, nil
}
