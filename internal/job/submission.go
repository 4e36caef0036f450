package job

// Submission is the answer to a PRD: the root and one job per task, in the
// order of the tasks. Replayed says that the same request came before under
// the same idempotency key, and that this is the answer it got then. Assigned
// says that the tasks that wait for nothing need not wait for the schedule.
type Submission struct {
	RootID   string   `json:"root_job_id"`
	JobIDs   []string `json:"job_ids"`
	Replayed bool     `json:"-"`
	Assigned bool     `json:"-"`
}
