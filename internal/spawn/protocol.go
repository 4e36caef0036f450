package spawn

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// FD is the descriptor at which a spawner finds its end of the socket pair.
const FD = 3

// maxMessage bounds a message in either direction.
const maxMessage = 1 << 20

// Request asks a spawner for one thing.
type Request struct {
	Seq    uint64  `json:"seq"`
	Create *Create `json:"create,omitempty"`
}

// Create asks for a sandbox. All paths are absolute, belong to this sandbox
// alone, and were made by the caller.
type Create struct {
	// ID names the sandbox to gVisor.
	ID string `json:"id"`
	// Bundle is the folder that holds the OCI config.json.
	Bundle string `json:"bundle"`
	// Root is the folder for gVisor's own state.
	Root string `json:"root"`
	// Image is the EROFS file that is the sandbox's root, read-only.
	Image string `json:"image"`
	// Guest is the EROFS file that the bundle mounts over it, read-only.
	Guest string `json:"guest"`
	// Disk is how many bytes may be written over it; 0 is any number.
	Disk int64 `json:"disk,omitempty"`
	// Groups are the control groups that the sandbox starts in.
	Groups Groups `json:"groups"`
	// Memory and MilliCPU are what programs see as the size of their machine;
	// 0 is the host's own. The groups are what enforces it.
	Memory   int64 `json:"memory,omitempty"`
	MilliCPU int64 `json:"milli_cpu,omitempty"`
	// Input and Output are FIFOs: the standard input and output of PID 1.
	Input  string `json:"input"`
	Output string `json:"output"`
	// Restore is a folder with a checkpoint to go on from; "" starts PID 1 anew.
	Restore string `json:"restore,omitempty"`
	// PanicLog is the file that tells why a sentry died.
	PanicLog string `json:"panic_log"`
	// Record is the file into which the spawner writes Made before it answers,
	// so that the processes can be found even if nobody hears the answer.
	Record string `json:"record"`
}

// Groups says how a process gets into its control groups: it is cloned into the
// folder Into, if there is one, and writes "0" to each of Files first of all.
type Groups struct {
	Into  string   `json:"into,omitempty"`
	Files []string `json:"files,omitempty"`
}

// Response answers the Request with the same Seq.
type Response struct {
	Seq   uint64 `json:"seq"`
	Error string `json:"error,omitempty"`
	Made  *Made  `json:"made,omitempty"`
}

// Made names the process of a sandbox on this host, of which all others are
// descendants that end with it.
type Made struct {
	Sentry Process `json:"sentry"`
}

// Process names a process so that a later one with the same number is not
// mistaken for it.
type Process struct {
	PID int `json:"pid"`
	// Start is the start time of /proc/PID/stat, in clock ticks since boot.
	Start uint64 `json:"start"`
}

// errTooLong is a message that no honest peer sends.
var errTooLong = errors.New("message is too long")

// WriteMessage writes v as JSON behind its length.
func WriteMessage(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(body) > maxMessage {
		return errTooLong
	}
	message := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	if _, err := w.Write(append(message, body...)); err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	return nil
}

// ReadMessage reads one message into v. At the clean end of the stream it
// returns io.EOF as it is.
func ReadMessage(r io.Reader, v any) error {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		return fmt.Errorf("read message length: %w", err)
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxMessage {
		return errTooLong
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return fmt.Errorf("read message: %w", err)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	return nil
}
