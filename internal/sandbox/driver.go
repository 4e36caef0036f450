package sandbox

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// Driver is one way to make sandboxes. Drivers stay thin: state, limits,
// output caps, redaction, timing and evidence live once, in Sandbox, above
// them. A driver imports this package and nothing of ours above it.
//
// # The contract
//
// Order. Create comes first and is called at most once for a Spec.ID. On the
// Box that it returns, calls may come in any order and from several
// goroutines, until Destroy. After Destroy every call on the Box fails with a
// fault of kind NotFound or Conflict, and none of them blocks.
//
// Context. A ctx bounds the call that takes it, never what the call started: a
// process goes on when the ctx of Exec ends, a sandbox goes on when the ctx of
// Create ends after Create has returned. When ctx ends during Create, Create
// returns an error soon and leaves nothing that Destroy of the reported handle
// does not remove.
//
// Handles. Create hands the Handle to report before it makes anything that
// could outlive this process, and gives up if report fails. A handle is
// versioned JSON: it can be written down, and a later process of the same or a
// newer version can Recover, or Destroy, what it names. Recover of something
// that is dead or gone is a fault of kind NotFound, with code CodeOutOfMemory
// when it has died of that. List names every sandbox
// of this driver's state folder, including half-made ones, so that orphans can
// be swept.
//
// Destroy. Destroy is idempotent: destroying what is gone, or was only half
// made, succeeds. When it returns nil, no process, mount, cgroup or file of
// the sandbox is left. It does not wait for processes to agree. A destroyed
// sandbox's execs end with verdict Killed or Lost, and every pending call
// returns.
//
// Processes. Exec returns as soon as the process was started. That the program
// does not exist, or is not executable, is not an error but an exit with code
// 127 or 126, as a shell has it. Each process has an id that is unique in its
// sandbox; an id that is taken, also by a process that has ended, is a fault of
// kind Conflict. Output arrives as frames: each stream's frames join without gap or
// overlap when sorted by offset, whatever the number of readers that came and
// went. Wait may be called many times, before and after the end, and gives the
// same Exit each time. The end of a process is not the end of its output pipe:
// a grandchild that holds the pipe open does not hold up Wait, and what it
// writes after the end is dropped: Next returns io.EOF soon after the end.
// Signal 9 with tree set ends the process and all of its descendants, and is
// idempotent: also after the end it succeeds.
//
// Verdicts. A non-zero exit, a signal, an out-of-memory kill are Exits, not
// errors. Running out of memory ends the sandbox: every process in it that had
// not ended has Exit.OOM, Done is closed, and Usage can still be asked until
// Destroy. A driver reports what it knows (code, signal, out of memory); the
// verdicts that come from our own decisions (Timeout, Limit, Killed) are given
// by Sandbox.
//
// Files. Put unpacks a tar stream below a folder of the sandbox, making
// parents; Get packs a folder as a tar stream whose names are relative to that
// folder, or one file under its base name. A path that does not exist is a
// fault of kind NotFound. Put refuses, or keeps below the folder, a name that
// leads out of it; a stream that is not a tar is a fault of kind Invalid.
// Everything that Get yields is hostile input to the caller: names, sizes,
// types and link targets. Put and Get never follow a link out of the sandbox
// onto the host. Filer, in files.go, is the contract of single files.
//
// Limits. A limit in Spec that Capabilities does not list as enforced makes
// Create fail with a fault of kind Invalid and code "limit_unenforceable",
// before any side effect; a network that Capabilities does not list, with code
// "network_unenforceable". Box.Enforced says what really holds. There is no
// best effort.
//
// Trust. What runs in a sandbox is hostile, and so is everything that a Box
// returns that came from inside it. A driver bounds it (frame size, count,
// names) before it reaches the caller.
type Driver interface {
	// Name is the word that users say: "gvisor", "docker", "fake".
	Name() string
	// Capabilities says what this driver can do and enforce on this machine.
	// It is constant over the driver's life.
	Capabilities() Capabilities
	// Create makes and starts a sandbox. See the contract above.
	Create(ctx context.Context, spec Spec, report func(Handle) error) (Box, error)
	// Recover adopts a live sandbox that an earlier process made.
	Recover(ctx context.Context, h Handle) (Box, error)
	// List returns the handles of everything that this driver has on this machine.
	List(ctx context.Context) ([]Handle, error)
	// Destroy removes a sandbox and all that belongs to it.
	Destroy(ctx context.Context, h Handle) error
	// Close releases what the driver itself holds. Sandboxes live on.
	Close() error
}

// CodeOutOfMemory is the code of Recover's fault for a sandbox that ran out of
// memory while nobody watched over it.
const CodeOutOfMemory = "out_of_memory"

// Box is one live sandbox as its driver sees it.
type Box interface {
	// Handle is the handle that Create reported.
	Handle() Handle
	// Enforced says which limits really hold for this sandbox.
	Enforced() Limits
	// Exec starts a process.
	Exec(ctx context.Context, spec ExecSpec) (Process, error)
	// Attach finds a process that was started earlier, perhaps by another
	// worker process. from gives the offsets at which its frames go on.
	// Unknown ids are a fault of kind NotFound.
	Attach(ctx context.Context, id string, from Offsets) (Process, error)
	// Put unpacks a tar stream below dir, an absolute path in the sandbox.
	Put(ctx context.Context, dir string, tar io.Reader) error
	// Get packs path, an absolute path in the sandbox, as a tar stream into w.
	Get(ctx context.Context, path string, w io.Writer) error
	// Usage reads what the sandbox has used so far.
	Usage(ctx context.Context) (Usage, error)
	// Done is closed when the sandbox has died or was destroyed.
	Done() <-chan struct{}
}

// Process is one process in a sandbox, started by Exec.
type Process interface {
	// ID is unique in its sandbox, and is what Attach takes.
	ID() string
	// Next returns the next frame of output, of either stream, in the order in
	// which each stream was written. After the last frame it returns io.EOF.
	// One goroutine at a time may call it. The frame's Data is the caller's
	// until the next call.
	Next(ctx context.Context) (Frame, error)
	// Write sends bytes to the process's standard input; CloseInput ends it.
	Write(ctx context.Context, p []byte) error
	CloseInput(ctx context.Context) error
	// Resize sets the terminal's size. Without a terminal it is a fault of
	// kind Conflict.
	Resize(ctx context.Context, cols, rows uint16) error
	// Signal sends a signal to the process alone, or to it and all of its
	// descendants when tree is set.
	Signal(ctx context.Context, signal int, tree bool) error
	// Wait returns the exit of the process once it has ended.
	Wait(ctx context.Context) (Exit, error)
}

// Feeder is implemented by a Process that can be given all of its input in one
// go.
type Feeder interface {
	// Feed is Write and CloseInput, and may return before the process has taken
	// all of it.
	Feed(ctx context.Context, p []byte) error
}

// Files is a tar stream, and the absolute path in the sandbox that it is
// unpacked below.
type Files struct {
	Dir string
	Tar io.Reader
	// Locked keeps what runs in the sandbox from changing them: see Locker.
	Locked bool
}

// Supplier is implemented by a Process that can be given files and all of its
// input in one go.
type Supplier interface {
	// Supply is Put, or PutLocked, and then Feed: the process gets no byte of its
	// input before all files lie there, and an empty one where they cannot be
	// laid there. It returns when the files are there.
	Supply(ctx context.Context, files Files, input []byte) error
}

// Leaver is implemented by a Process that can hand over what it leaves with its
// end.
type Leaver interface {
	// GetAfter is Get as soon as the process has ended. It is called before that.
	GetAfter(ctx context.Context, path string, w io.Writer) error
}

// Imaged is implemented by a Box that knows the digest of the image that it
// stands on, and by which name that was asked for.
type Imaged interface {
	Image() (name, digest string)
}

// Environed is implemented by a Box that can say which environment a process
// would be started with.
type Environed interface {
	// Environ is the whole environment, as name=value, in the order in which the
	// process finds it.
	Environ(spec ExecSpec) []string
}

// Adjustable is implemented by a Box whose limits can be changed.
type Adjustable interface {
	// Adjust gives the sandbox these limits in place of those that hold, and
	// ends its being in the background. A limit that cannot be changed so that
	// a new sandbox would look the same from inside is a fault of kind Invalid;
	// after an error the sandbox is of no use.
	Adjust(ctx context.Context, l Limits) error
}

// Locker is implemented by a Box that can hold files which what runs in it
// cannot change.
type Locker interface {
	// PutLocked unpacks as Put does, but dir itself and what the stream brings
	// can be read and not be written by commands. An entry whose header names a
	// user (any number above 0) is the sandbox user's own, as with Put. It is
	// called before a command of a stranger's was started.
	PutLocked(ctx context.Context, dir string, tar io.Reader) error
}

// Pauser is implemented by a Box whose driver has Capabilities.Pause.
//
// Pause stops everything in the sandbox: it uses no processor time any more and
// keeps its memory. Both calls are idempotent. While it is paused, what has to be
// asked inside it, also what was asked before and not answered yet, fails soon
// with a fault of kind Conflict and code CodePaused; what such a call has done is
// not known. Next and Wait of a command wait on. Usage and Destroy work. Recover
// gives a paused sandbox back as paused. Where Capabilities.Pause is not set,
// Pause is a fault of kind Invalid.
type Pauser interface {
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// CodePaused is the code of the fault of what cannot be done while a sandbox is
// paused.
const CodePaused = "paused"

// Capabilities is what a driver can do, and what it can enforce.
type Capabilities struct {
	// Isolation names the wall: "user-space kernel", "namespaces", "none".
	Isolation string `json:"isolation"`
	// Images are the image names that work without a download; "*" means any.
	Images []string `json:"images"`
	// Networks are the modes that are enforced.
	Networks []Network `json:"networks"`
	// The limits that are enforced when asked for.
	CPU       bool `json:"cpu"`
	Memory    bool `json:"memory"`
	Processes bool `json:"processes"`
	Disk      bool `json:"disk"`
	OpenFiles bool `json:"open_files"`
	// CPUTime says that Usage measures the CPU of what runs, soon enough for
	// Sandbox to hold a limit on it.
	CPUTime bool `json:"cpu_time"`
	// Optional powers.
	TTY      bool `json:"tty"`
	Pause    bool `json:"pause"`
	Snapshot bool `json:"snapshot"`
	Recover  bool `json:"recover"`
	Files    bool `json:"files"` // each Box is a Filer
	Ports    bool `json:"ports"` // each Box is a Dialer
}

// Handle names a sandbox across process restarts. State belongs to the driver
// and is opaque to everybody else.
type Handle struct {
	Version int             `json:"version"`
	Driver  string          `json:"driver"`
	ID      string          `json:"id"`
	State   json.RawMessage `json:"state,omitempty"`
}

// Spec says what sandbox to make.
type Spec struct {
	// ID is ours: lower-case letters and digits, at most 40.
	ID string `json:"id"`
	// Image is a name that the driver or the image store knows; "" is the default.
	Image string `json:"image,omitempty"`
	// Env is the environment of every process in it. The fake driver is
	// scripted through it.
	Env map[string]string `json:"env,omitempty"`
	// Limits are asked for; zero values are not asked for.
	Limits Limits `json:"limits"`
	// Network is "" or none by default.
	Network Network `json:"network,omitempty"`
	// Labels are kept with the handle, for people and sweeps.
	Labels map[string]string `json:"labels,omitempty"`
	// Background says that others are to be preferred until Adjust is called,
	// where the driver can do that: nobody waits for this sandbox yet.
	Background bool `json:"background,omitempty"`
	// Restore names a folder that Snapshotter.Snapshot wrote, and Generation the
	// one that must be in it; 0 is any.
	Restore    string `json:"restore,omitempty"`
	Generation int64  `json:"generation,omitempty"`
}

// Limits bound a sandbox. Zero means that the limit is not asked for.
type Limits struct {
	MilliCPU  int64 `json:"milli_cpu,omitempty"`
	Memory    int64 `json:"memory_bytes,omitempty"`
	Processes int64 `json:"processes,omitempty"`
	Disk      int64 `json:"disk_bytes,omitempty"`
	OpenFiles int64 `json:"open_files,omitempty"`
	// CPUTime is how much processor time the sandbox may use in its life, its
	// own kernel and guest included. Sandbox holds it, by what Usage measures.
	CPUTime time.Duration `json:"cpu_time_ns,omitempty"`
}

// Network is how far a sandbox can reach.
type Network string

// The network modes. Modes that a driver cannot enforce are refused.
const (
	NetworkNone       Network = "none"
	NetworkController Network = "controller"
	NetworkAllowlist  Network = "allowlist"
	NetworkFull       Network = "full"
)

// ExecSpec says what process to start.
type ExecSpec struct {
	// ID is the caller's, unique in the sandbox: letters, digits, '-', at most 64.
	ID string `json:"id"`
	// Command is the program and its arguments. A name without a slash is
	// looked up in the PATH of the process's environment.
	Command []string `json:"command"`
	// Env is laid over the sandbox's environment.
	Env map[string]string `json:"env,omitempty"`
	// Dir is the working directory; "" is /workspace.
	Dir string `json:"dir,omitempty"`
	// User is a name or number in the image; "" is the sandbox user.
	User string `json:"user,omitempty"`
	// TTY gives the process a terminal; then everything it says is on stdout.
	TTY        bool   `json:"tty,omitempty"`
	Cols, Rows uint16 `json:"-"`
	// Stdin keeps the standard input open for Write; otherwise it is empty.
	Stdin bool `json:"stdin,omitempty"`
}

// Stream is one of a process's two output streams.
type Stream uint8

// The streams.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// Frame is a piece of one stream. Offset counts the stream's bytes before it.
type Frame struct {
	Stream Stream
	Offset int64
	Data   []byte
}

// Offsets is a position in both streams.
type Offsets struct {
	Stdout int64 `json:"stdout"`
	Stderr int64 `json:"stderr"`
}

// Exit is how a process ended, as its driver knows it.
type Exit struct {
	// Code is the exit code, or -1 when there is none.
	Code int `json:"code"`
	// Signal is the number of the signal that ended it, or 0.
	Signal int `json:"signal,omitempty"`
	// OOM says that the sandbox ran out of memory.
	OOM bool `json:"oom,omitempty"`
	// Lost says that the end was not seen: the sandbox died around it.
	Lost bool `json:"lost,omitempty"`
	// Ended is when the driver saw the end.
	Ended time.Time `json:"ended"`
}

// Usage is what a sandbox has used so far, as seen from outside it. A field
// that a driver cannot measure is -1.
type Usage struct {
	CPU        time.Duration `json:"cpu_ns"`
	Memory     int64         `json:"memory_bytes,omitempty"` // now
	PeakMemory int64         `json:"peak_memory_bytes"`
	Processes  int64         `json:"processes"`
}
