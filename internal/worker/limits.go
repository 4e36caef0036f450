package worker

import (
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// limitsFor returns the limits of a job: the worker's own, or less where the
// job asks for less. What it asks for beyond them is refused, because room was
// made for no more.
func (c Config) limitsFor(w job.Work) (sandbox.Limits, error) {
	l := c.Limits
	milliCPU, memory, err := w.Limits()
	if err != nil {
		return sandbox.Limits{}, err
	}
	for _, ask := range []struct {
		field       string
		asked, most int64
		to          *int64
	}{
		{"cpu_limit", milliCPU, l.MilliCPU, &l.MilliCPU},
		{"memory_limit", memory, l.Memory, &l.Memory},
	} {
		if ask.asked == 0 {
			continue
		}
		if ask.most > 0 && ask.asked > ask.most {
			return sandbox.Limits{}, fault.Field(ask.field, "%d is more than this worker gives, which is %d (in thousandths of a processor, or bytes)", ask.asked, ask.most).
				WithCode("limit_too_large")
		}
		*ask.to = ask.asked
	}
	return l, nil
}
