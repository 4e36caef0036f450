package wire

import (
	"encoding/binary"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Status is the outcome of a request.
type Status uint8

// The outcomes.
const (
	StatusOK        Status = 0
	StatusInvalid   Status = 1 // the request is wrong
	StatusNotFound  Status = 2 // what it names is not there
	StatusConflict  Status = 3 // what it names is not in the state for it
	StatusDenied    Status = 4 // the sandbox's user may not
	StatusExhausted Status = 5 // the guest keeps as much as it can
	StatusInternal  Status = 6 // anything else

	// The outcomes below are said only to who has asked for a kind of Open
	// that Knows tells of: an older worker would not understand them.

	StatusExists     Status = 7  // something stands where something is to be made
	StatusNotEmpty   Status = 8  // the folder has entries
	StatusIsDir      Status = 9  // a folder where a file is meant
	StatusNotDir     Status = 10 // a file where a folder is meant
	StatusDiskFull   Status = 11 // no room for the file
	StatusNotFile    Status = 12 // neither a file nor a folder
	StatusPortClosed Status = 13 // nobody listens
	lastStatus              = StatusPortClosed
)

// MaxMessage bounds the text of an outcome.
const MaxMessage = 512

// Outcome is how a request or a transfer ended, with a reason in words if it
// went wrong.
type Outcome struct {
	Status  Status
	Message string
}

func (o Outcome) append(b []byte) []byte {
	return appendString(append(b, byte(o.Status)), Plain(o.Message))
}

func (c *cursor) outcome() Outcome {
	o := Outcome{Status: Status(c.byte("status"))}
	if o.Status > lastStatus {
		c.fail("status %d is unknown", o.Status)
	}
	o.Message = Plain(c.string("message", MaxMessage))
	return o
}

// Plain returns s as one bounded line of printable text, so that it can be
// shown and logged.
func Plain(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			r = '.'
		}
		if b.Len()+utf8.RuneLen(r) > MaxMessage {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Opened is the outcome of an Open.
type Opened struct {
	Outcome
	// Of an Attach: whether the command has a terminal, and an open input.
	TTY, Stdin bool
}

// Append appends the payload to b.
func (o Opened) Append(b []byte) []byte {
	return appendBool(appendBool(o.append(b), o.TTY), o.Stdin)
}

// DecodeOpened decodes an Opened.
func DecodeOpened(b []byte) (Opened, error) {
	c := &cursor{b: b}
	o := Opened{Outcome: c.outcome(), TTY: c.bool("terminal"), Stdin: c.bool("input")}
	return o, c.end()
}

// The streams of Output, numbered as package sandbox has them.
const (
	Stdout uint8 = 1
	Stderr uint8 = 2
)

// Output is a piece of a stream.
type Output struct {
	Stream uint8
	Offset int64
	Data   []byte
}

// MaxOutput is the most that one Output frame carries.
const MaxOutput = 32 << 10

// Append appends the payload to b.
func (o Output) Append(b []byte) []byte {
	return append(appendOffset(append(b, o.Stream), o.Offset), o.Data...)
}

// DecodeOutput decodes an Output. Its data is part of b.
func DecodeOutput(b []byte) (Output, error) {
	c := &cursor{b: b}
	o := Output{Stream: c.byte("stream"), Offset: c.offset("offset")}
	if o.Stream != Stdout && o.Stream != Stderr {
		c.fail("stream %d is unknown", o.Stream)
	}
	o.Data = c.b
	return o, c.err
}

// Exit is how a command ended, or a transfer.
type Exit struct {
	// Code is the exit code of a command that ended by itself, else -1.
	Code int
	// Signal is the signal that ended the command, or 0.
	Signal int
	Ended  time.Time
	// Outcome is of a transfer.
	Outcome
}

// Append appends the payload to b.
func (e Exit) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(e.Code+1))
	b = append(b, byte(e.Signal))
	b = binary.BigEndian.AppendUint64(b, uint64(e.Ended.UnixNano()))
	return e.append(b)
}

// DecodeExit decodes an Exit.
func DecodeExit(b []byte) (Exit, error) {
	c := &cursor{b: b}
	code := c.uint16("exit code")
	if code > 256 {
		c.fail("exit code %d", int(code)-1)
	}
	e := Exit{Code: int(code) - 1, Signal: int(c.byte("signal"))}
	if e.Signal > 64 {
		c.fail("signal %d", e.Signal)
	}
	if t := c.take(8, "time"); t != nil {
		e.Ended = time.Unix(0, int64(binary.BigEndian.Uint64(t)))
	}
	e.Outcome = c.outcome()
	return e, c.end()
}

// Done is the outcome of the request with its tag.
type Done struct {
	Tag uint32
	Outcome
}

// Append appends the payload to b.
func (d Done) Append(b []byte) []byte {
	return d.append(binary.BigEndian.AppendUint32(b, d.Tag))
}

// DecodeDone decodes a Done.
func DecodeDone(b []byte) (Done, error) {
	c := &cursor{b: b}
	d := Done{Tag: c.uint32("tag"), Outcome: c.outcome()}
	return d, c.end()
}
