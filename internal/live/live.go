// Package live is the noun of sandboxes that are kept: what is asked for, how
// one stands, the commands in it, and what they came to. A run makes a sandbox
// and is done with it; a live one is somebody's computer for an hour.
package live

import (
	"cmp"
	"time"

	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// OnTimeout says what becomes of a sandbox whose time is over.
type OnTimeout string

// What can become of it.
const (
	Kill  OnTimeout = "kill"
	Pause OnTimeout = "pause"
)

// FleetName begins the names of the sandboxes of the fleet; the id of the worker
// follows.
const FleetName = "fleet-"

// Paused is how a sandbox stands still; "" is that it does not.
type Paused string

// The ways to stand still.
const (
	// Frozen has its processors taken away and keeps its memory.
	Frozen Paused = "freeze"
	// Checkpointed lies on disk, memory and files, and uses nothing else.
	Checkpointed Paused = "checkpoint"
)

// Aside is the name of the checkpoint that a sandbox is put aside as, which goes
// with the sandbox.
func Aside(sandbox string) string { return "aside" + sandbox }

// Spec is what a sandbox is asked to be. Zero values stand for what the server
// gives.
type Spec struct {
	Image   string            `json:"image,omitempty"`
	Driver  string            `json:"driver,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Limits  sandbox.Limits    `json:"limits"`
	Network sandbox.Network   `json:"network,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	// TTL is how long it may live, Idle how long it may be of no use to anybody;
	// 0 is for ever.
	TTL       time.Duration `json:"ttl_ns,omitempty"`
	Idle      time.Duration `json:"idle_ns,omitempty"`
	OnTimeout OnTimeout     `json:"on_timeout,omitempty"`
	// Sync says how its files are kept alike with those of a session; nil is
	// only when it is asked for. A fork does not inherit it.
	Sync *Sync `json:"sync,omitempty"`
	// Secrets are names of variables in Env that a fork does not inherit.
	Secrets []string `json:"secrets,omitempty"`
}

// Sandbox is a sandbox as the manager keeps it.
type Sandbox struct {
	ID    string
	Owner string
	// Name is unique among the open sandboxes of an owner; "" is none.
	Name string
	// Session and App say on whose behalf it lives, for the accounts; "" is
	// nobody's.
	Session, App string
	Spec         Spec

	State   sandbox.State
	Outcome sandbox.Outcome
	Reason  string
	Paused  Paused
	// Worker has it; "" until one was chosen.
	Worker string
	Made   Made
	// Generation counts its snapshots, and is that of the newest, or of the one
	// that it was restored from.
	Generation int64
	// Parent is the sandbox that it was forked from, or "".
	Parent string
	Usage  sandbox.Usage // when it ended, or was last looked at
	Disk   int64         // bytes of files that were written, as last measured; 0 before
	// LinkKey is what links to its ports are signed with.
	LinkKey []byte

	CreatedAt time.Time
	StartedAt time.Time
	EndedAt   time.Time
	// ActiveAt is when it was last of use, Deadline when its time to live is
	// over, ExpiresAt when one of both ends it; zero is never.
	ActiveAt  time.Time
	Deadline  time.Time
	ExpiresAt time.Time
}

// Open reports whether something may still happen to it.
func (s *Sandbox) Open() bool { return !s.State.Ended() }

// LastDisk is how many bytes of files were written as last measured, or -1.
func (s *Sandbox) LastDisk() int64 {
	if s.Disk == 0 {
		return -1
	}
	return s.Disk
}

// Order tells a worker to make a sandbox. The worker checks it again.
type Order struct {
	ID    string `json:"id"`
	Owner string `json:"owner"`
	Spec  Spec   `json:"spec"`
	// Parent is the sandbox that it is a fork of, or "".
	Parent string `json:"parent,omitempty"`
	// Files are put below /workspace before anything else happens, by relative
	// path.
	Files map[string][]byte `json:"files,omitempty"`
	// Restore names a snapshot of this worker to start from; "" is a fresh one.
	Restore string `json:"restore,omitempty"`
	Trace   string `json:"trace,omitempty"`
}

// Made is what a worker made.
type Made struct {
	Driver    string         `json:"driver"`
	Isolation string         `json:"isolation"`
	Image     string         `json:"image"`
	Digest    string         `json:"image_digest,omitempty"`
	Enforced  sandbox.Limits `json:"enforced"`
	Warm      bool           `json:"warm,omitempty"` // it was waiting
	Started   time.Time      `json:"started"`
}

// Closing tells a worker to end a sandbox.
type Closing struct {
	ID      string          `json:"id"`
	Outcome sandbox.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
}

// Ended is the end of a sandbox as its worker saw it.
type Ended struct {
	ID      string          `json:"id"`
	Outcome sandbox.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
	Usage   sandbox.Usage   `json:"usage"`
	At      time.Time       `json:"at"`
}

// ExecState is where an exec stands.
type ExecState string

// The states of an exec.
const (
	Starting ExecState = "STARTING"
	Running  ExecState = "RUNNING"
	Done     ExecState = "ENDED"
)

// Exec is a command in a sandbox as the manager keeps it. It outlives the
// sandbox.
type Exec struct {
	ID      string
	Sandbox string
	Owner   string
	Project int64 `json:",omitempty"` // of the sandbox when it was started; 0 is none
	Command []string
	Dir     string
	User    string
	TTY     bool
	Timeout time.Duration
	State   ExecState
	Result  *ExecResult // once it has ended
	// Origin is the exec that this one is a fork of, by whose id its worker
	// knows it; "" is that it was started here.
	Origin string `json:",omitempty"`

	CreatedAt time.Time
	StartedAt time.Time
	EndedAt   time.Time
}

// Inside is the id by which its worker knows it.
func (e *Exec) Inside() string { return cmp.Or(e.Origin, e.ID) }

// Command tells a worker to start an exec.
type Command struct {
	ID      string            `json:"id"`
	Sandbox string            `json:"sandbox"`
	Command []string          `json:"command"`
	Env     map[string]string `json:"env,omitempty"`
	Dir     string            `json:"dir,omitempty"`
	User    string            `json:"user,omitempty"`
	TTY     bool              `json:"tty,omitempty"`
	Cols    uint16            `json:"cols,omitempty"`
	Rows    uint16            `json:"rows,omitempty"`
	// Stdin is given at once; Open keeps the input open for more.
	Stdin []byte `json:"stdin,omitempty"`
	Open  bool   `json:"open,omitempty"`
	// Timeout is how long it may run; 0 is for as long as the sandbox does.
	Timeout   time.Duration `json:"timeout_ns,omitempty"`
	OutputCap int64         `json:"output_cap,omitempty"` // of each stream; 0 is the worker's own
}

// ExecResult is how an exec ended.
type ExecResult struct {
	Verdict  sandbox.Verdict `json:"verdict"`
	Cause    string          `json:"cause,omitempty"`
	ExitCode int             `json:"exit_code"` // -1 where there is none
	Signal   int             `json:"signal,omitempty"`
	Stdout   run.Output      `json:"stdout"`
	Stderr   run.Output      `json:"stderr"`
	Started  time.Time       `json:"started"`
	Ended    time.Time       `json:"ended"`
}

// ExecEnded is the end of an exec as its worker tells it. Streams that are not
// inline were put as blobs before.
type ExecEnded struct {
	ID      string            `json:"id"`
	Sandbox string            `json:"sandbox"`
	Result  ExecResult        `json:"result"`
	Inline  map[string][]byte `json:"inline,omitempty"` // by digest
}

// Input is what goes to the standard input of an exec. Offset counts the bytes
// before it: what came before is not given twice, and a gap is refused.
type Input struct {
	Sandbox string `json:"sandbox"`
	Exec    string `json:"exec"`
	Offset  int64  `json:"offset"`
	Data    []byte `json:"data,omitempty"`
	Close   bool   `json:"close,omitempty"`
}

// Signal is sent to an exec.
type Signal struct {
	Sandbox string `json:"sandbox"`
	Exec    string `json:"exec"`
	Signal  int    `json:"signal"`
	Tree    bool   `json:"tree,omitempty"` // to all of its descendants too
	// Kill ends it with the verdict killed, by whom it says.
	Kill string `json:"kill,omitempty"`
}

// Size is that of an exec's terminal.
type Size struct {
	Sandbox string `json:"sandbox"`
	Exec    string `json:"exec"`
	Cols    uint16 `json:"cols"`
	Rows    uint16 `json:"rows"`
}

// Follow asks for the output of an exec from offsets on.
type Follow struct {
	Sandbox string          `json:"sandbox"`
	Exec    string          `json:"exec"`
	From    sandbox.Offsets `json:"from"`
}

// SnapshotKind is what a snapshot holds.
type SnapshotKind string

// The kinds of snapshots.
const (
	Files SnapshotKind = "files" // what differs from the image, as a blob
	Full  SnapshotKind = "full"  // memory too, at its worker
)

// Snapshot is a state of a sandbox that can be gone back to.
type Snapshot struct {
	ID         string
	Sandbox    string
	Owner      string
	Kind       SnapshotKind
	Generation int64
	Label      string
	Worker     string // has it, if it is full
	SHA256     string // of the blob, if it is files
	Bytes      int64
	Spec       Spec // of the sandbox, for those that start from it
	Made       Made
	Execs      []string `json:",omitempty"` // that ran, if it is full
	CreatedAt  time.Time
}

// SnapshotOrder tells a worker to take a snapshot, or to put a sandbox aside.
type SnapshotOrder struct {
	ID         string       `json:"id"`
	Sandbox    string       `json:"sandbox"`
	Kind       SnapshotKind `json:"kind"`
	Generation int64        `json:"generation"`
	// Aside ends the sandbox's processes once it is taken: it is a checkpoint,
	// and Resume goes on from it.
	Aside bool `json:"aside,omitempty"`
}

// SnapshotMade is what came of it.
type SnapshotMade struct {
	SHA256 string `json:"sha256,omitempty"`
	Bytes  int64  `json:"bytes"`
	// Execs ran at that moment, and go on in what starts from it.
	Execs []string `json:"execs,omitempty"`
}

// Stats is how a sandbox is doing.
type Stats struct {
	Usage sandbox.Usage `json:"usage"`
	Disk  int64         `json:"disk_bytes"` // of files that were written; -1 where that is not known
	Execs int           `json:"execs"`      // that run
	At    time.Time     `json:"at"`
}

// ExecID names an exec by its sandbox and the id that it has there.
type ExecID struct {
	Sandbox string `json:"sandbox"`
	Exec    string `json:"exec"`
}

// Standing is a sandbox that a worker has, as it says when it registers.
type Standing struct {
	ID     string   `json:"id"`
	Paused Paused   `json:"paused,omitempty"`
	Execs  []string `json:"execs,omitempty"` // that run, or whose end was not told yet
}
