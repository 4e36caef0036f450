// Package wire is what a worker and the guest of a sandbox say to each other,
// and how it is written down. Both sides use it; it imports nothing of ours.
//
// They speak over two FIFOs, in frames: a header of fixed size and a bounded
// payload. A worker opens a session with a Hello that carries a nonce; the
// guest answers with a Welcome that carries it back, and until then the worker
// drops whatever an earlier session left in the FIFO. A worker's frame is
// never longer than what a pipe takes in one piece, so that one that dies
// leaves no half frame behind.
//
// A worker may meet the guest of another release. The form of a header, and of
// Hello and Welcome, is the same in every version: a guest answers a Hello of
// any in its own and ignores all else of another, and goes on with its work; the
// worker sees which version answered, and refuses what it does not speak.
// Within a version guests learn new kinds of Open. An older one would break at
// such: a worker asks first, by Knows, and pings behind it, so that silence is
// an answer too.
//
// Within a session a worker numbers its channels. A channel is opened by an
// Open message, which starts a command, finds one, or moves files; everything
// about that command then carries the channel's number.
//
// Nothing that a guest sends can be believed. Decoding allocates no more than
// the bytes at hand, and each field is checked here for what can be checked
// without knowing the session.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Version is the version of the frames: raise it when anything but Hello and
// Welcome changes so that the other side would not understand.
const Version = 1

const (
	// HeaderSize is the size of a frame's header.
	HeaderSize = 12
	// MaxPayload bounds the payload of a guest's frame.
	MaxPayload = 64 << 10
	// MaxRequest bounds the payload of a worker's frame: with its header it is
	// the 4 KiB that a pipe takes whole or not at all.
	MaxRequest = 4096 - HeaderSize
	// MaxOpen bounds an Open message, which travels in several frames.
	MaxOpen = 1 << 20
	// Window is how many bytes of a stream a guest sends ahead of the worker's
	// acknowledgement.
	Window = 256 << 10
	// SmallWindow is the same for connections and watches, of which there are
	// many that may all stand still.
	SmallWindow = 64 << 10
)

// Type says what a frame is.
type Type uint8

// A worker's frames.
const (
	TypeHello      Type = 1  // opens a session; payload is the nonce
	TypePing       Type = 2  // answered by Done on channel 0
	TypeOpen       Type = 3  // a piece of an Open message; FlagMore on all but the last
	TypeInput      Type = 4  // bytes for the standard input; with a tag, answered by Done
	TypeCloseInput Type = 5  // the end of the input; answered by Done
	TypeResize     Type = 6  // answered by Done
	TypeSignal     Type = 7  // answered by Done
	TypeAck        Type = 8  // how much output the worker has taken
	TypeForget     Type = 9  // the worker has all there is to know of this command
	TypeKnows      Type = 10 // asks for a kind of Open; answered by Done, by older guests not at all
	TypeHush       Type = 20 // with Tree set: say nothing but answers, until one without it or a Hello; answered by Done
)

// A guest's frames.
const (
	TypeWelcome Type = 65 // payload is the nonce of the Hello
	TypeOpened  Type = 66 // the outcome of an Open
	TypeOutput  Type = 67 // bytes of a stream
	TypeExit    Type = 68 // how the command or the transfer ended
	TypeDone    Type = 69 // the outcome of a request with a tag
)

// The flags of a frame.
const (
	FlagMore uint8 = 1 // Open: more pieces follow
	FlagEnd  uint8 = 2 // Output: the stream ends behind these bytes
)

// Header is the head of a frame.
type Header struct {
	Version uint8
	Type    Type
	Flags   uint8
	Channel uint32
	Length  uint32
}

// ErrMalformed is what every decoding error wraps: the other side does not
// speak this protocol, and nothing more can be made of it.
var ErrMalformed = errors.New("malformed frame")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// AppendFrame appends a whole frame to b.
//
// Preconditions: the payload is within the bound of its direction.
func AppendFrame(b []byte, t Type, flags uint8, channel uint32, payload []byte) []byte {
	b = append(b, Version, byte(t), flags, 0)
	b = binary.BigEndian.AppendUint32(b, channel)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

// DecodeHeader decodes a header, and refuses another version and a payload
// above limit.
func DecodeHeader(b []byte, limit uint32) (Header, error) {
	h, err := decodeAny(b, limit)
	switch {
	case err != nil:
		return Header{}, err
	case h.Version != Version:
		return Header{}, malformed("version %d, this is %d", h.Version, Version)
	case b[3] != 0:
		return Header{}, malformed("reserved byte is set")
	case h.Flags&^(FlagMore|FlagEnd) != 0:
		return Header{}, malformed("unknown flags %#x", h.Flags)
	}
	return h, nil
}

// decodeAny decodes what is the same in every version.
func decodeAny(b []byte, limit uint32) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, malformed("header of %d bytes", len(b))
	}
	h := Header{
		Version: b[0],
		Type:    Type(b[1]),
		Flags:   b[2],
		Channel: binary.BigEndian.Uint32(b[4:]),
		Length:  binary.BigEndian.Uint32(b[8:]),
	}
	if h.Length > limit {
		return Header{}, malformed("payload of %d bytes, at most %d", h.Length, limit)
	}
	return h, nil
}

// Reader reads frames. The payload of one is valid until the next is read.
type Reader struct {
	r       io.Reader
	limit   uint32
	any     bool
	head    [HeaderSize]byte
	payload []byte
}

// NewReader returns a Reader of frames with payloads of at most limit bytes.
// r should be buffered.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{r: r, limit: uint32(limit)}
}

// AnyVersion has the reader return frames of other versions too, whose payload
// means nothing unless they are a Hello or a Welcome.
func (r *Reader) AnyVersion() *Reader {
	r.any = true
	return r
}

// Next reads one frame.
func (r *Reader) Next() (Header, []byte, error) {
	if _, err := io.ReadFull(r.r, r.head[:]); err != nil {
		return Header{}, nil, err
	}
	decode := DecodeHeader
	if r.any && r.head[0] != Version {
		decode = decodeAny
	}
	h, err := decode(r.head[:], r.limit)
	if err != nil {
		return Header{}, nil, err
	}
	if cap(r.payload) < int(h.Length) {
		r.payload = make([]byte, h.Length)
	}
	payload := r.payload[:h.Length]
	if _, err := io.ReadFull(r.r, payload); err != nil {
		return Header{}, nil, err
	}
	return h, payload, nil
}
