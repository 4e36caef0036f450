package job

// Collection is what a pass over the history removed, or would remove.
type Collection struct {
	DryRun     bool
	Plans      int64 // with their jobs and records
	Runs       int64 // with their records
	Sandboxes  int64 // with their execs
	Events     int64
	Workers    int64 // that were away for long
	Blobs      int64 // files that nothing refers to any more
	BlobBytes  int64
	SmallBytes int64 // of blobs that lay with their records
	Outputs    int64 // live output of leases that are over
	KeptBlobs  int64 // files that stay
	KeptBytes  int64
}
