package job

import (
	"bytes"
	"encoding/json"
	"time"
)

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

// DriverOf names the driver that a checked payload asks for, or "".
func DriverOf(payload json.RawMessage) string {
	if !bytes.Contains(payload, []byte(`"driver"`)) {
		return "" // most jobs; a payload can be large
	}
	w, err := ParseWork(payload)
	if err != nil {
		return ""
	}
	return w.Driver
}

// DriverModel is the name under which every worker with the driver takes jobs.
func DriverModel(driver string) string { return "driver:" + driver }

// Names lists what a worker answers to: its id, its models, and the drivers
// that it serves.
func (w Worker) Names() []string {
	names := append([]string{w.ID}, w.Models...)
	degraded := map[string]bool{}
	for _, p := range w.Proofs {
		degraded[p.Name] = p.Degraded != ""
	}
	for _, d := range w.Drivers {
		if !degraded[d] {
			names = append(names, DriverModel(d))
		}
	}
	return names
}
