package job

import "time"

// Health is what the manager says of itself and of the workers that are
// connected to it.
type Health struct {
	Uptime  time.Duration
	Workers int
	Drivers []string // what they can make sandboxes with, each once
	// Proofs are the drivers of all of them, also those that are not served.
	Proofs []Driver
	// Paused is why some of them take no jobs for now, one reason for each.
	Paused []string
}
