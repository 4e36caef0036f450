package worker

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/probe"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// proveAgain is how long a worker waits before it repeats a probe that could
// not be run.
const proveAgain = 30 * time.Second

// proofs are what the probes of the drivers came to.
type proofs struct {
	mu      sync.Mutex
	reports map[string]probe.Report
}

// prove probes every driver. What it finds goes into the registration.
func (r *run) prove(ctx context.Context) {
	if r.Probe == nil {
		return
	}
	for name, d := range r.Drivers {
		report := r.Probe(ctx, d)
		r.proofs.mu.Lock()
		if r.proofs.reports == nil {
			r.proofs.reports = map[string]probe.Report{}
		}
		r.proofs.reports[name] = report
		r.proofs.mu.Unlock()
		if ctx.Err() != nil {
			return // the worker is stopping: nothing was found out
		}
		if why := report.Degraded(); why != "" {
			r.log.Error("the driver is not served: its isolation was not proved", "driver", name, "reason", why)
			for _, a := range report.Through() {
				r.log.Error("an attempt of the isolation probe was not stopped", "driver", name, "attempt", a.Name, "detail", a.Detail)
			}
			continue
		}
		r.log.Info("the driver's isolation is proved", "driver", name, "attempts", len(report.Attempts), "exempt", report.Exempt, "took", report.Took)
	}
}

// degraded is why a driver must not be used, or "".
func (r *run) degraded(name string) string {
	if r.Probe == nil {
		return ""
	}
	r.proofs.mu.Lock()
	defer r.proofs.mu.Unlock()
	report, ok := r.proofs.reports[name]
	if !ok {
		return "the isolation probe has not run"
	}
	return report.Degraded()
}

// passing reports whether what keeps a driver from being served may pass: a
// probe that could not be run may succeed later, a hole stays one until
// somebody has looked at it and started the worker again.
func (r *run) passing(name string) bool {
	r.proofs.mu.Lock()
	defer r.proofs.mu.Unlock()
	report := r.proofs.reports[name]
	return report.Err != nil && len(report.Through()) == 0
}

// awaitProof returns when the worker's driver is served, or ctx ends. Until
// then the worker takes no job: there is no other driver to fall back to.
func (r *run) awaitProof(ctx context.Context) {
	r.awaitRelease(ctx)
	for r.degraded(r.Driver) != "" {
		if !r.passing(r.Driver) {
			<-ctx.Done()
			return
		}
		timer := time.NewTimer(proveAgain)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		r.prove(ctx)
		if r.degraded(r.Driver) == "" {
			r.survey(ctx)
			// The manager still has the old verdict.
			_ = r.session.renew(ctx, r.session.current()) // its failure ends the run by itself
		}
	}
}

// awaitRelease waits while everything is stopped, and then does what the start of
// the worker left out.
func (r *run) awaitRelease(ctx context.Context) {
	waited := false
	for {
		stop, changed := r.brake.Over()
		if !stop.Kill && !stop.Freeze {
			break
		}
		waited = true
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
	if !waited || r.degraded(r.Driver) == "" && r.Probe != nil {
		return
	}
	r.prove(ctx)
	r.survey(ctx)
	_ = r.session.renew(ctx, r.session.current()) // its failure ends the run by itself
}

// summary is what the manager is told of a driver.
func (r *run) summary(name string, d sandbox.Driver) dispatch.DriverSummary {
	s := dispatch.DriverSummary{Name: name, Capabilities: d.Capabilities(), Degraded: line(r.degraded(name))}
	if v, ok := d.(interface{ Version() string }); ok {
		s.Version = line(v.Version())
	}
	r.proofs.mu.Lock()
	defer r.proofs.mu.Unlock()
	if report, ok := r.proofs.reports[name]; ok {
		s.Probe = &dispatch.ProbeSummary{
			At: report.At, Tried: len(report.Attempts), Exempt: line(report.Exempt),
			Stopped: len(report.Attempts) - len(report.Through()),
		}
	}
	return s
}

// line keeps a text within what the manager takes: one line, not too long.
func line(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0 {
			return ' '
		}
		return c
	}, clip(strings.ToValidUTF8(text, "?")))
}
