package sandbox_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

func TestProcessorTimeIsHeldOverAllExecs(t *testing.T) {
	bubble(t, func(t *testing.T, d sandbox.Driver) {
		o := options(t, d, map[string]string{"FAKE_CPU": "3s"})
		o.Spec.Limits.CPUTime = 10 * time.Second
		s := open(t, o)
		for range 3 {
			if r := result(t, start(t, s, sandbox.ExecOptions{}, "sleep", "5")); r.Verdict != sandbox.OK {
				t.Errorf("below the limit: %+v", r)
			}
		}
		e := start(t, s, sandbox.ExecOptions{}, "sleep", "99999")
		r := result(t, e)
		if r.Verdict != sandbox.Limit || !strings.HasPrefix(r.Cause, "cpu_time: ") || r.Ended.Sub(r.Started) > 2*time.Second {
			t.Errorf("over it: %+v", r)
		}
		if r := result(t, start(t, s, sandbox.ExecOptions{}, "sleep", "99999")); r.Verdict != sandbox.Limit {
			t.Errorf("after it: %+v", r)
		}
		if err := s.Get(t.Context(), "/workspace", discard{}); err != nil {
			t.Errorf("its files: %v", err)
		}
		shut(t, s)
	})
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func TestWhatGoesOnAfterItsProcessorTimeIsDestroyed(t *testing.T) {
	for name, usage := range map[string]func() (sandbox.Usage, error){
		"it goes on":             func() (sandbox.Usage, error) { return sandbox.Usage{CPU: time.Hour}, nil },
		"it cannot be measured":  func() (sandbox.Usage, error) { return sandbox.Usage{CPU: -1}, nil },
		"nobody answers in time": func() (sandbox.Usage, error) { return sandbox.Usage{}, context.DeadlineExceeded },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d sandbox.Driver) {
				o := options(t, &broken{Driver: d, usage: usage}, nil)
				o.Spec.Limits.CPUTime = 10 * time.Second
				s := open(t, o)
				e := start(t, s, sandbox.ExecOptions{}, "sleep", "99999")
				<-s.Done()
				synctest.Wait()
				if st := s.Status(); st.Outcome != sandbox.OutcomeKilled {
					t.Errorf("%+v", st)
				}
				if r := result(t, e); r.Verdict == sandbox.OK {
					t.Errorf("%+v", r)
				}
				shut(t, s)
			})
		})
	}
}
