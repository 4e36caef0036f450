package job

import "time"

// Worker is what the manager knows of one worker.
type Worker struct {
	ID string `json:"id"`
	// Identity is made once per worker folder and guarded by a lock there, so
	// two workers that come with one ID are told apart, and a worker that was
	// restarted is known again.
	Identity string `json:"-"`
	// Incarnation is new with each start of the process.
	Incarnation string   `json:"incarnation"`
	Role        string   `json:"role"`
	Models      []string `json:"models,omitempty"` // further names it answers to
	Drivers     []string `json:"drivers"`
	// Proofs say of each driver whether it is served.
	Proofs []Driver `json:"-"`
	// Paused is why it takes no more jobs for now.
	Paused  string `json:"-"`
	Slots   int    `json:"slots"`
	Version string `json:"version"`
	// Session is what the worker proves itself with since it last registered;
	// "" once it has left.
	Session string `json:"-"`
	// Connected says that its command stream is open, as far as is known, and
	// Manager at which manager.
	Connected    bool      `json:"connected"`
	Manager      string    `json:"-"`
	RegisteredAt time.Time `json:"registered_at"`
	SeenAt       time.Time `json:"seen_at"`
}
