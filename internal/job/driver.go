package job

import "time"

// Driver is one way in which a worker makes sandboxes, and how it was proved.
type Driver struct {
	Name      string
	Version   string
	Isolation string
	// Degraded is why it is not served; "" is served.
	Degraded string
	// Tried and Stopped count the attempts of the isolation probe; Exempt says
	// why there were none.
	Tried, Stopped int
	Exempt         string
	ProbedAt       time.Time
}
