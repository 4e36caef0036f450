package live

import "time"

// Unfinished is what a manager has begun for somebody and not answered yet. It
// is written down before anything of it is made; where nobody goes on with it,
// because the manager was killed, all of it is undone.
type Unfinished struct {
	ID   string
	What Work
	// Manager does it, and was alive at SeenAt.
	Manager string
	SeenAt  time.Time
	// Sandbox is what it is done to, Worker has that and all that is made.
	Sandbox, Worker string
	// Snapshot is to be removed at the worker, Sandboxes are to be ended, as far
	// as they were made.
	Snapshot  string   `json:",omitempty"`
	Sandboxes []string `json:",omitempty"`
	// GivenUp says that it is being undone: nobody may finish it any more.
	GivenUp   bool `json:",omitempty"`
	CreatedAt time.Time
}

// Work is a kind of what can be unfinished.
type Work string

// The kinds.
const (
	Forking Work = "fork"
	Saving  Work = "snapshot"
	Making  Work = "create" // of a sandbox that nobody waits for any more
)
