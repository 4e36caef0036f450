// Package machine is the noun of machines: computers in the shape of Fly's
// Machines API. A machine is a record that outlives its sandbox: a stop ends the
// sandbox, a start makes another under the same id, name and address.
//
// It says what is asked for and how one stands, and checks what outsiders send;
// it stores nothing and starts nothing.
package machine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"time"

	"github.com/google/uuid"
)

// App groups the machines of an owner under a name.
type App struct {
	Owner, Name string
	CreatedAt   time.Time
	Machines    int64 // that are not destroyed
}

// Machine is a machine as the manager keeps it.
type Machine struct {
	ID    string
	App   string
	Owner string
	// Name is unique among the open machines of an app.
	Name   string
	Region string
	// Instance names this version of it; Version counts them.
	Instance string
	Version  int64
	State    State
	// Config is the document that was sent, with the defaults filled in.
	Config json.RawMessage

	// Wanted says that it is to be started, so that who finds it not started yet
	// can wait for it; Ran that it was started once.
	Wanted, Ran bool
	// Sandbox is the one that it runs in, Roots the execs of its processes; empty
	// while it has none.
	Sandbox string
	Roots   []string
	// Restarts counts how often its processes were started again since its start.
	Restarts int
	Image    Image
	Cordoned bool
	Lease    Lease
	Events   []Event // the newest first

	CreatedAt   time.Time
	UpdatedAt   time.Time
	DestroyedAt time.Time // zero until it is
}

// Image is what a machine was really made from.
type Image struct {
	Name   string `json:"name,omitempty"`
	Digest string `json:"digest,omitempty"`
}

// Lease keeps a machine for who knows its nonce.
type Lease struct {
	Nonce       string    `json:"nonce,omitempty"`
	Owner       string    `json:"owner,omitempty"`
	Description string    `json:"description,omitempty"`
	Version     string    `json:"version,omitempty"`
	ExpiresAt   time.Time `json:"expires_at,omitzero"`
}

// Held reports whether a lease holds at a time.
func (l Lease) Held(now time.Time) bool { return l.Nonce != "" && now.Before(l.ExpiresAt) }

// Event is something that happened to a machine, as its owner reads it.
type Event struct {
	ID     string    `json:"id"`
	Type   string    `json:"type"`
	Status string    `json:"status"`
	Source string    `json:"source"` // "user", or "flyd" for what nobody asked for
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
	Exit   *Exit     `json:"exit,omitempty"`
}

// Exit is how a process of a machine ended.
type Exit struct {
	Code       int       `json:"exit_code"`
	Signal     int       `json:"signal"`
	OOM        bool      `json:"oom_killed"`
	Requested  bool      `json:"requested_stop"`
	Restarting bool      `json:"restarting"`
	At         time.Time `json:"exited_at"`
}

// maxEvents is how many events a machine remembers.
const maxEvents = 20

// Note puts an event before the others.
func (m *Machine) Note(e Event) {
	e.ID = NewInstance()
	e.Status = string(m.State)
	m.Events = append([]Event{e}, m.Events...)
	m.Events = m.Events[:min(len(m.Events), maxEvents)]
}

// Ref names a machine, and the lease under which something is done to it.
type Ref struct {
	App, ID string
	Nonce   string
}

// Request is what a machine is asked to be.
type Request struct {
	Name   string
	Region string
	Config json.RawMessage
	// SkipLaunch leaves it as it is made; CurrentVersion refuses an update of
	// another instance.
	SkipLaunch     bool
	CurrentVersion string
}

// Command is what is run in a machine.
type Command struct {
	Command []string
	Stdin   string
	Timeout time.Duration
}

// Result is what came of it. TimedOut says that it was killed for its time.
type Result struct {
	Stdout, Stderr                   string
	StdoutTruncated, StderrTruncated bool
	ExitCode, Signal                 int
	TimedOut, OOM                    bool
}

// Process is one that runs in a machine.
type Process struct {
	PID     int
	Command string
	CPU     time.Duration // that it has used
	System  time.Duration // of which in the kernel
	Started time.Duration // after the machine's own start
	Memory  int64         // bytes
}

// NewID makes the id of a machine: 14 hexadecimal digits.
func NewID() string {
	var bits [7]byte
	_, _ = rand.Read(bits[:]) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(bits[:])
}

// NewInstance makes an id that sorts by the time of its making: 26 capital
// letters and digits.
func NewInstance() string {
	const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	id := uuid.Must(uuid.NewV7())
	return base32.NewEncoding(crockford).WithPadding(base32.NoPadding).EncodeToString(id[:])
}

// NewNonce makes a secret for a lease.
func NewNonce() string {
	var bits [12]byte
	_, _ = rand.Read(bits[:])
	return hex.EncodeToString(bits[:])
}

// NewName makes a name for a machine that was given none.
func NewName(id string) string { return "machine-" + id }

// PrivateIP is the address of a machine: unique-local, and the same for its
// whole life. No network has it; ports are reached through the manager.
func PrivateIP(id string) string {
	sum := sha256.Sum256([]byte("machine address " + id))
	var ip [16]byte
	copy(ip[2:], sum[:])
	ip[0], ip[1] = 0xfd, 0xaa
	return netip.AddrFrom16(ip).String()
}

// IsID reports whether a text can be the id of a machine.
func IsID(id string) bool {
	if len(id) != 14 {
		return false
	}
	_, err := hex.DecodeString(id)
	return err == nil
}

// SandboxNames are the names that the sandbox of a machine can have: with them a
// restarted manager finds the one that it was making. An update makes the new
// sandbox while the old one is there, under the name that is free.
func (m *Machine) SandboxNames() [2]string {
	return [2]string{"machine-" + m.ID, "machine-" + m.ID + "-2"}
}

// Open reports whether the machine is not destroyed.
func (m *Machine) Open() bool { return m.State != Destroyed }
