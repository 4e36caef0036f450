package httpapi

import (
	"time"

	"github.com/aurea-dev/aurea/internal/job"
)

// DriverBody is one way in which a worker makes sandboxes, and how it was
// proved.
type DriverBody struct {
	Name      string     `json:"name"`
	Version   string     `json:"version"`
	Isolation string     `json:"isolation" doc:"What stands between the code and the host."`
	Status    string     `json:"status" enum:"served,degraded" doc:"degraded: the worker refuses to use it."`
	Reason    string     `json:"reason" doc:"Why it is degraded, or why it needed no proof."`
	Tried     int        `json:"tried" doc:"Forbidden things that the isolation probe tried at the worker's start."`
	Stopped   int        `json:"stopped" doc:"How many of them were stopped."`
	ProbedAt  *time.Time `json:"probed_at"`
}

func driverBodies(list []job.Driver) []DriverBody {
	bodies := make([]DriverBody, 0, len(list))
	for _, d := range list {
		b := DriverBody{
			Name: d.Name, Version: d.Version, Isolation: d.Isolation, Status: "served", Reason: d.Exempt,
			Tried: d.Tried, Stopped: d.Stopped, ProbedAt: timeOrNull(d.ProbedAt),
		}
		if d.Degraded != "" {
			b.Status, b.Reason = "degraded", d.Degraded
		}
		bodies = append(bodies, b)
	}
	return bodies
}
