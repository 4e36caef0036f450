package job

// Log is a piece of a job's output.
type Log struct {
	Data    []byte
	Next    int64 // the offset after Data
	Attempt int   // the try that it belongs to; another try starts again at 0
	Ended   bool  // nothing more will come from this job
}
