// Package run is the noun of the code runner: what a run is asked to do, what
// it came to, and how it stands. A run is one shot: a sandbox is made, code and
// files go in, output and artifacts come out, the sandbox is gone.
package run

import (
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Order is a checked request: what a worker is told to do. The worker checks
// it again, for it trusts no more than it must.
type Order struct {
	ID       string `json:"id"`
	Owner    string `json:"owner"`
	Project  int64  `json:"project_id,omitempty"` // by which a kill switch finds it; 0 is none
	Language string `json:"language"`             // a name of the registry, lower case
	Code     string `json:"code"`
	// Files are inputs beside the code, by plain name.
	Files map[string]string `json:"files,omitempty"`
	Args  []string          `json:"args,omitempty"`
	Env   map[string]string `json:"env,omitempty"`
	Stdin string            `json:"stdin,omitempty"`
	// Timeout bounds the program, Compile the step before it where the
	// language has one.
	Timeout time.Duration `json:"timeout_ns"`
	// ReadOnly keeps code and inputs immutable for the program; artifacts have
	// a folder of their own then.
	ReadOnly bool `json:"readonly"`
	// Artifacts says whether what the program left is collected.
	Artifacts bool            `json:"artifacts"`
	Driver    string          `json:"driver,omitempty"`
	Image     string          `json:"image,omitempty"`
	Network   sandbox.Network `json:"network,omitempty"`
	// Limits are asked for; zero values stand for the worker's own.
	Limits sandbox.Limits `json:"limits"`
	// OutputCap bounds each stream; 0 is the worker's own.
	OutputCap int64 `json:"output_cap,omitempty"`
	// Keep lets the run go on when the manager that asked is gone, and its
	// result be asked for again under the same ID. Without it the end of the
	// call is the end of the run.
	Keep bool `json:"keep,omitempty"`
	// From is how much of each stream the asker has already.
	From  sandbox.Offsets `json:"from,omitzero"`
	Trace string          `json:"trace,omitempty"`
}

// The steps of a run.
const (
	StepCompile = "compile"
	StepRun     = "run"
)

// Result is how a run ended, as its worker saw it.
type Result struct {
	Verdict  sandbox.Verdict `json:"verdict"`
	Cause    string          `json:"cause,omitempty"`
	ExitCode int             `json:"exit_code"` // -1 where there is none
	Signal   int             `json:"signal,omitempty"`
	// Step is StepCompile where the program was never started because its
	// compile step failed; else StepRun.
	Step string `json:"step"`
	// Stdout and Stderr say how much was kept and seen of each; the bytes go
	// ahead of the result, as pieces.
	Stdout Output `json:"stdout"`
	Stderr Output `json:"stderr"`
	// Artifacts are what the program left, by name; Skipped says what was not
	// taken, and why.
	Artifacts map[string]Artifact `json:"artifacts,omitempty"`
	Skipped   []string            `json:"skipped,omitempty"`
	Usage     Usage               `json:"usage"`
	Sandbox   string              `json:"sandbox"`
	Driver    string              `json:"driver"`
	Isolation string              `json:"isolation"`
	Image     string              `json:"image"`
	Digest    string              `json:"image_digest,omitempty"`
	Enforced  sandbox.Limits      `json:"enforced"`
	Warm      bool                `json:"warm"` // it came from the pool
	Worker    string              `json:"worker"`
	Started   time.Time           `json:"started"`
	Ended     time.Time           `json:"ended"`
	// Stages say where the time went, in order.
	Stages []Stage `json:"stages,omitempty"`
	// Inputs is the manager's, whatever a worker says: it knows what was asked.
	Inputs *Inputs `json:"inputs,omitempty"`
}

// Output is what became of one stream.
type Output struct {
	Kept      int64  `json:"kept"`
	Seen      int64  `json:"seen"`
	SHA256    string `json:"sha256"`
	Truncated bool   `json:"truncated,omitempty"`
}

// Artifact is one file that a program left.
type Artifact struct {
	Data   []byte `json:"data,omitempty"`
	SHA256 string `json:"sha256"`
	// Bytes is how many there are, where they are kept apart.
	Bytes int64 `json:"bytes,omitempty"`
}

// Usage is what a run has used; -1 is not known.
type Usage struct {
	CPU        time.Duration `json:"cpu_ns"`
	PeakMemory int64         `json:"peak_memory_bytes"`
	Wall       time.Duration `json:"wall_ns"` // of the program alone
}

// Stage is a stretch of a run: "claim" or "create", "put", "compile", "exec",
// "collect", "destroy", and the manager's own around them.
type Stage struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took_ns"`
}

// Digests lists the digests of the bytes that a result refers to.
func (r *Result) Digests() []string {
	list := []string{r.Stdout.SHA256, r.Stderr.SHA256}
	for _, a := range r.Artifacts {
		list = append(list, a.SHA256)
	}
	return slices.DeleteFunc(list, func(d string) bool { return d == "" })
}
