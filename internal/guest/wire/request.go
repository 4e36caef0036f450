package wire

import "encoding/binary"

// Nonce ties a Welcome to its Hello.
type Nonce [16]byte

// Kind says what an Open message asks for.
type Kind uint8

// The kinds of Open.
const (
	KindExec   Kind = 1 // start a command
	KindAttach Kind = 2 // go on with a command that was started earlier
	KindPut    Kind = 3 // unpack the channel's input below Path
	KindGet    Kind = 4 // pack Path onto the channel's output
	KindLock   Kind = 5 // unpack as Put does, what no command can change

	// The kinds below are asked for by Knows before they are sent, because
	// older guests do not know them.

	KindStat   Kind = 6  // an Entry of Path onto the output
	KindList   Kind = 7  // a listing onto the output
	KindRead   Kind = 8  // bytes of a file onto the output, its Entry onto the second stream
	KindWrite  Kind = 9  // the channel's input into a file; its Entry onto the output
	KindMkdir  Kind = 10 // make a folder
	KindMove   Kind = 11 // give Path another
	KindCopy   Kind = 12 // copy Path
	KindRemove Kind = 13 // remove Path
	KindWatch  Kind = 14 // Changes onto the output
	KindDial   Kind = 15 // connect the channel to Port

	// As Put and Lock, beside a command: its input waits until all is unpacked,
	// and ends where that fails. These are sent only to guests that this release
	// has started.

	KindPutFor  Kind = 16
	KindLockFor Kind = 17

	KindGetAfter Kind = 18 // pack as Get does, once a command has ended

	KindDisk Kind = 19 // how many bytes were written, onto the output; asked for by Knows
	lastKind      = KindDisk
)

// Known reports whether this release knows the kind.
func (k Kind) Known() bool { return k >= KindExec && k <= lastKind }

// File reports whether the kind is about single files.
func (k Kind) File() bool { return k >= KindStat && k <= KindWatch }

// Open opens a channel.
type Open struct {
	Kind Kind
	// ID is the command's, of Exec and Attach and of what is done beside one.
	ID string
	// Of Exec.
	Args, Env  []string
	Dir, User  string
	TTY, Stdin bool
	Cols, Rows uint16
	// Of Attach: where its output goes on.
	Stdout, Stderr int64
	// Of Put, Lock and Get, and of what is about single files.
	Path string
	File File
	// Of Dial.
	Port uint16
}

// maxText bounds a single string of an Open: the kernel takes no longer
// argument either.
const maxText = 128 << 10

// Encode returns the message, to be sent in pieces of at most MaxRequest.
func (o Open) Encode() []byte {
	b := []byte{byte(o.Kind)}
	switch o.Kind {
	case KindExec:
		b = appendString(b, o.ID)
		b = appendStrings(b, o.Args)
		b = appendStrings(b, o.Env)
		b = appendString(b, o.Dir)
		b = appendString(b, o.User)
		b = appendBool(b, o.TTY)
		b = appendBool(b, o.Stdin)
		b = binary.BigEndian.AppendUint16(b, o.Cols)
		b = binary.BigEndian.AppendUint16(b, o.Rows)
	case KindAttach:
		b = appendString(b, o.ID)
		b = appendOffset(b, o.Stdout)
		b = appendOffset(b, o.Stderr)
	case KindPut, KindLock, KindGet:
		b = appendString(b, o.Path)
	case KindDisk:
	case KindDial:
		b = binary.BigEndian.AppendUint16(b, o.Port)
	case KindPutFor, KindLockFor, KindGetAfter:
		b = appendString(appendString(b, o.ID), o.Path)
	default:
		b = o.File.append(appendString(b, o.Path))
	}
	return b
}

// DecodeOpen decodes a whole Open message.
func DecodeOpen(b []byte) (Open, error) {
	c := &cursor{b: b}
	o := Open{Kind: Kind(c.byte("kind"))}
	switch o.Kind {
	case KindExec:
		o.ID = c.string("id", 64)
		o.Args = c.strings("argument", maxText)
		o.Env = c.strings("environment", maxText)
		o.Dir = c.string("folder", 4096)
		o.User = c.string("user", 256)
		o.TTY = c.bool("terminal")
		o.Stdin = c.bool("input")
		o.Cols = c.uint16("columns")
		o.Rows = c.uint16("rows")
	case KindAttach:
		o.ID = c.string("id", 64)
		o.Stdout = c.offset("offset")
		o.Stderr = c.offset("offset")
	case KindPut, KindLock, KindGet:
		o.Path = c.string("path", maxPath)
	case KindDisk:
	case KindDial:
		o.Port = c.uint16("port")
	case KindPutFor, KindLockFor, KindGetAfter:
		o.ID = c.string("id", 64)
		o.Path = c.string("path", maxPath)
	default:
		if !o.Kind.File() {
			c.fail("kind %d is unknown", o.Kind)
		}
		o.Path = c.string("path", maxPath)
		o.File = c.file()
	}
	return o, c.end()
}

// Input is bytes for a standard input. With a tag above 0 it is answered once
// it and all input before it was taken.
type Input struct {
	Tag  uint32
	Data []byte
}

// MaxInput is the most that one Input frame carries.
const MaxInput = MaxRequest - 4

// Append appends the payload to b.
func (i Input) Append(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, i.Tag), i.Data...)
}

// DecodeInput decodes an Input. Its data is part of b.
func DecodeInput(b []byte) (Input, error) {
	c := &cursor{b: b}
	i := Input{Tag: c.uint32("tag")}
	i.Data = c.b
	return i, c.err
}

// Control is a request about a command: CloseInput, Resize, Signal, or about the
// guest itself: Ping, Hush.
type Control struct {
	Tag        uint32
	Cols, Rows uint16
	Signal     uint8
	Tree       bool
}

// Append appends the payload to b.
func (r Control) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, r.Tag)
	b = binary.BigEndian.AppendUint16(b, r.Cols)
	b = binary.BigEndian.AppendUint16(b, r.Rows)
	b = append(b, r.Signal)
	return appendBool(b, r.Tree)
}

// DecodeControl decodes a Control.
func DecodeControl(b []byte) (Control, error) {
	c := &cursor{b: b}
	r := Control{
		Tag:    c.uint32("tag"),
		Cols:   c.uint16("columns"),
		Rows:   c.uint16("rows"),
		Signal: c.byte("signal"),
		Tree:   c.bool("tree"),
	}
	return r, c.end()
}

// Ack says up to which offsets the worker has taken a command's output.
type Ack struct{ Stdout, Stderr int64 }

// Append appends the payload to b.
func (a Ack) Append(b []byte) []byte {
	return appendOffset(appendOffset(b, a.Stdout), a.Stderr)
}

// DecodeAck decodes an Ack.
func DecodeAck(b []byte) (Ack, error) {
	c := &cursor{b: b}
	a := Ack{Stdout: c.offset("offset"), Stderr: c.offset("offset")}
	return a, c.end()
}

// DecodeNonce decodes the payload of a Hello or a Welcome.
func DecodeNonce(b []byte) (Nonce, error) {
	var n Nonce
	if len(b) != len(n) {
		return n, malformed("nonce of %d bytes", len(b))
	}
	copy(n[:], b)
	return n, nil
}
