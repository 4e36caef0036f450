package sandbox

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// How often the processor time of a sandbox is read, and when one whose time
// was used up, or cannot be read, has to end.
const (
	shortestLook = 20 * time.Millisecond
	longestLook  = time.Second
	blindTime    = 10 * time.Second
	// overrun is what may still be used beyond the limit, and once more the
	// limit itself, for taking the files out.
	overrun = 10 * time.Second
)

// watchCPU ends the execs of the sandbox when its processor time is used up.
// The sandbox stays, so that its files can be taken out; one in which something
// goes on nevertheless is destroyed, and so is one that cannot be measured.
func (s *Sandbox) watchCPU(limit time.Duration) {
	defer s.tasks.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	seen := time.Now()
	for {
		select {
		case <-s.over:
			return
		case <-timer.C:
		}
		used, err := s.cpuTime()
		switch {
		case err != nil && time.Since(seen) > blindTime:
			s.condemn(fmt.Sprintf("its processor time cannot be measured: %v", err))
			return
		case err != nil:
			timer.Reset(longestLook)
			continue
		case used >= 2*limit+overrun:
			s.condemn(fmt.Sprintf("cpu_time: it goes on after its limit of %s", limit))
			return
		case used >= limit:
			s.spend(fmt.Sprintf("cpu_time: %s of processor time were used, the limit is %s", used.Round(time.Millisecond), limit))
		}
		seen = time.Now()
		timer.Reset(s.nextLook(limit - used))
	}
}

func (s *Sandbox) cpuTime() (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(s.life, longestLook, errSlowUsage)
	defer cancel()
	u, err := s.box.Usage(ctx)
	if err != nil {
		return 0, err
	}
	if u.CPU < 0 {
		return 0, errSlowUsage
	}
	return u.CPU, nil
}

var errSlowUsage = fault.New(fault.Unavailable, "the driver does not tell the processor time").WithCode("usage_unknown")

// nextLook is before the time that is left can have been used up.
func (s *Sandbox) nextLook(left time.Duration) time.Duration {
	milli := s.box.Enforced().MilliCPU
	if most := int64(runtime.NumCPU()) * 1000; milli <= 0 || milli > most {
		milli = most
	}
	if left <= 0 {
		return longestLook
	}
	return min(max(left*1000/time.Duration(milli), shortestLook), longestLook)
}

// spend ends every exec, and those to come, because a limit was used up.
func (s *Sandbox) spend(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spent != "" {
		return
	}
	s.spent = why
	for e := range s.execs {
		e.decide(Limit, why)
	}
}
