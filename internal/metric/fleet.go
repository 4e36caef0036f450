package metric

import "github.com/prometheus/client_golang/prometheus"

func newEnforced() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "aurea_fleet_resource_enforced_total", Help: "Workers of the fleet that were held to their resources, by whether they had exceeded them. Which ones is in the log, as the metric resource_enforced.",
	}, []string{"breach"})
}

// Enforced counts a worker of the fleet that was held to its resources.
func (m *Metrics) Enforced(breach bool) {
	word := "no"
	if breach {
		word = "yes"
	}
	m.enforced.WithLabelValues(word).Inc()
}
