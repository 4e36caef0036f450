// Package evidence holds what is kept of a job's work: the record of what ran
// and how it ended, and the reproducible snapshot of the workspace that it
// left. It is written outside the sandbox, by the worker; what came out of the
// sandbox is hostile input to it.
package evidence

import (
	"time"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Record says what ran, under what limits, and how it ended. One is kept for
// each try.
type Record struct {
	JobID   string `json:"job_id"`
	Attempt int    `json:"attempt"`
	Fence   int64  `json:"fence"`
	Worker  string `json:"worker"`

	PayloadSHA256 string   `json:"payload_sha256"`
	Command       []string `json:"command,omitempty"`

	Sandbox   string `json:"sandbox,omitempty"`
	Driver    string `json:"driver"`
	Isolation string `json:"isolation"`
	Image     string `json:"image"`
	// ImageDigest is what the name stood for when the sandbox was made.
	ImageDigest string          `json:"image_digest,omitempty"`
	Network     sandbox.Network `json:"network"`
	Asked       sandbox.Limits  `json:"limits_asked"`
	Enforced    sandbox.Limits  `json:"limits_enforced"`
	Timeout     time.Duration   `json:"timeout_ns"`

	Verdict  sandbox.Verdict `json:"verdict"`
	Cause    string          `json:"cause,omitempty"` // which limit, killed by whom, what was lost
	ExitCode int             `json:"exit_code"`
	Signal   int             `json:"signal,omitempty"`
	Started  time.Time       `json:"started_at"`
	Ended    time.Time       `json:"ended_at"`
	Usage    *sandbox.Usage  `json:"usage,omitempty"`

	Stdout   Output    `json:"stdout"`
	Stderr   Output    `json:"stderr"`
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	// Skipped names what was in the workspace and not taken into the snapshot
	// (devices, sockets, FIFOs), cut to a bound.
	Skipped []string `json:"skipped,omitempty"`
}

// Output describes one stream of output.
type Output struct {
	Bytes     int64  `json:"bytes"`  // kept
	Seen      int64  `json:"seen"`   // written by the process
	SHA256    string `json:"sha256"` // of what was kept
	Truncated bool   `json:"truncated"`
}

// Snapshot describes the tar of a workspace. TreeDigest leaves out the name of
// the job, so equal trees have equal digests.
type Snapshot struct {
	Path       string `json:"path"`
	SHA256     string `json:"sha256"`
	Bytes      int64  `json:"bytes"`
	TreeDigest string `json:"tree_digest"`
}

// Artifact is a file that a job left: its output, its diff, what it put into
// artifacts/. The bytes are in the blob store under the digest.
type Artifact struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

// Names of the artifacts that every job has.
const (
	StdoutLog   = "stdout.log"
	StderrLog   = "stderr.log"
	ChangesDiff = "changes.diff"
)
