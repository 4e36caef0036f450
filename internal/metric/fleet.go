package metric

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/aurea-dev/aurea/internal/trigger"
)

func newEnforced() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "aurea_fleet_resource_enforced_total", Help: "Workers of the fleet that were held to their resources, by whether they had exceeded them. Which ones is in the log, as the metric resource_enforced.",
	}, []string{"breach"})
}

func newFired() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "aurea_fleet_trigger_firings_total", Help: "Firings of triggers at workers of the fleet that have come to their end, by what was watched and what came of it.",
	}, []string{"kind", "outcome"})
}

// Fired counts a firing of a trigger that has come to its end.
func (m *Metrics) Fired(k trigger.Kind, o trigger.Outcome) {
	m.fired.WithLabelValues(string(k), string(o)).Inc()
}

// Enforced counts a worker of the fleet that was held to its resources.
func (m *Metrics) Enforced(breach bool) {
	word := "no"
	if breach {
		word = "yes"
	}
	m.enforced.WithLabelValues(word).Inc()
}
