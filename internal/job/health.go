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

// Figures are what is measured of the whole, for whoever watches it.
type Figures struct {
	Jobs         map[State]int64
	DeadLetters  int64
	OldestQueued time.Time // zero when nothing waits
	LastEvent    int64
	Workers      []WorkerFigures // that are connected
	DiskFree     int64           // bytes, where the manager's data lies
	DiskBytes    int64           // 0 is not known
	Blobs        int64           // files, as the last pass over the history found them
	BlobBytes    int64
}

// WorkerFigures are what one connected worker said of itself.
type WorkerFigures struct {
	ID        string
	Slots     int
	Leases    int
	Sandboxes int
	Paused    bool
	DiskFree  int64
	DiskBytes int64 // 0 is not known
	Drivers   []Driver
}

// SandboxFigures are what open sandboxes use, as last measured.
type SandboxFigures struct {
	Open      int
	Execs     int64         // that run in them
	Spent     time.Duration // processor time of all there were, since the manager began
	Memory    int64         // bytes, together
	Disk      int64         // bytes of files that were written, together
	Processes int64
	Busiest   []SandboxFigure // those with the most memory, as many as were asked for
}

// SandboxFigure is what one sandbox uses.
type SandboxFigure struct {
	ID        string
	CPU       time.Duration
	Memory    int64
	Disk      int64
	Processes int64
}
