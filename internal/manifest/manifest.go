// Package manifest is the noun of the law: who may exist, with what limits,
// whose child, how deep, and for how long. A manifest is the paper of one
// worker of the fleet, a contract what all papers of a project must keep to.
//
// It signs and checks papers and says what a contract allows. It stores
// nothing and starts nothing: the governor decides, with what is stored.
package manifest

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Bounds of what a manifest holds.
const (
	// MaxSnapshot bounds the state that a worker is given along.
	MaxSnapshot = 64 << 10
	// MaxDepth bounds how deep any contract lets workers have workers.
	MaxDepth = 1000

	maxCPU      = 4096
	maxMemoryMB = 1 << 30
	maxNesting  = 64
	idLength    = 8
)

// NetworkPolicy is how far a worker may reach.
type NetworkPolicy struct {
	AllowController bool `json:"allow_controller"`
	AllowExternal   bool `json:"allow_external"`
}

// Resources are what a worker may use.
type Resources struct {
	CPULimit      float64       `json:"cpu_limit"` // processors
	MemoryLimitMB int64         `json:"memory_limit_mb"`
	Network       NetworkPolicy `json:"network_policy"`
}

// DefaultNetwork is what a worker gets that asks for nothing.
func DefaultNetwork() NetworkPolicy { return NetworkPolicy{AllowController: true} }

// Check refuses resources that make no sense.
func (r Resources) Check() error {
	if !(r.CPULimit > 0 && r.CPULimit <= maxCPU) || r.MilliCPU() < 1 {
		return fault.Field("resources.cpu_limit", "must be more than 0 processors, at least 0.001, and at most %d", maxCPU)
	}
	if r.MemoryLimitMB <= 0 || r.MemoryLimitMB > maxMemoryMB {
		return fault.Field("resources.memory_limit_mb", "must be from 1 to %d", maxMemoryMB)
	}
	return nil
}

// MilliCPU is the limit in thousandths of a processor.
func (r Resources) MilliCPU() int64 { return int64(math.Round(r.CPULimit * 1000)) }

// Memory is the limit in bytes.
func (r Resources) Memory() int64 { return r.MemoryLimitMB << 20 }

// Manifest is the paper of one worker. What it says counts only as long as its
// signature holds.
type Manifest struct {
	WorkerID string
	// ParentID is the worker whose child it is; "" is nobody's: a root.
	ParentID string
	Depth    int
	// State is what the worker is given along: a JSON object in its canonical
	// form.
	State     json.RawMessage
	IssuedAt  time.Time
	Resources Resources
	Signature string
}

// paper is a manifest as it travels.
type paper struct {
	WorkerID  string          `json:"worker_id"`
	ParentID  *string         `json:"parent_id"`
	Depth     int             `json:"depth"`
	State     json.RawMessage `json:"state_snapshot"`
	IssuedAt  time.Time       `json:"issued_at"`
	Resources Resources       `json:"resources"`
	Signature string          `json:"signature"`
}

// MarshalJSON writes the seven fields.
func (m Manifest) MarshalJSON() ([]byte, error) {
	p := paper{WorkerID: m.WorkerID, Depth: m.Depth, State: m.State, IssuedAt: m.IssuedAt, Resources: m.Resources, Signature: m.Signature}
	if m.ParentID != "" {
		p.ParentID = &m.ParentID
	}
	if len(p.State) == 0 {
		p.State = json.RawMessage("{}")
	}
	return json.Marshal(p)
}

// UnmarshalJSON reads the seven fields. It checks nothing else: see Check.
func (m *Manifest) UnmarshalJSON(b []byte) error {
	var p paper
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return err
	}
	*m = Manifest{WorkerID: p.WorkerID, Depth: p.Depth, State: p.State, IssuedAt: p.IssuedAt, Resources: p.Resources, Signature: p.Signature}
	if p.ParentID != nil {
		m.ParentID = *p.ParentID
	}
	return nil
}

// Root reports whether it is nobody's child.
func (m *Manifest) Root() bool { return m.ParentID == "" }

// NewID returns a worker id: eight random hexadecimal digits.
func NewID() string {
	var bits [idLength / 2]byte
	_, _ = rand.Read(bits[:]) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(bits[:])
}

// ValidID reports whether text can be the id of a worker that was issued here.
func ValidID(text string) bool {
	if len(text) != idLength {
		return false
	}
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// CanonicalState brings a JSON object to the one form that is signed: keys
// sorted, no spaces, numbers as they were written. Nothing is {}. What could be
// read in two ways, such as a key that is there twice, is refused.
func CanonicalState(raw json.RawMessage) (json.RawMessage, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage("{}"), nil
	}
	if len(raw) > MaxSnapshot {
		return nil, fault.New(fault.TooLarge, "state_snapshot has more than %d bytes", MaxSnapshot).WithCode("state_too_large")
	}
	if raw[0] != '{' || !utf8.Valid(raw) {
		return nil, fault.Field("state_snapshot", "must be a JSON object in UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	v, err := readValue(dec, 0)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is something behind its end")
		}
	}
	if err != nil {
		return nil, fault.Field("state_snapshot", "is not a JSON object that can be read in one way only: %w", err)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fault.Field("state_snapshot", "cannot be written: %w", err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// readValue reads one value and refuses keys that are there twice.
func readValue(dec *json.Decoder, depth int) (any, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("it is nested more than %d deep", maxNesting)
	}
	t, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		return readObject(dec, depth)
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			v, err := readValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := dec.Token()
		return list, err
	}
	return t, nil
}

func readObject(dec *json.Decoder, depth int) (any, error) {
	object := map[string]any{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		key, _ := t.(string) // the decoder lets nothing else stand there
		if _, twice := object[key]; twice {
			return nil, fmt.Errorf("it has the key %.40q twice", key)
		}
		if object[key], err = readValue(dec, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := dec.Token()
	return object, err
}
