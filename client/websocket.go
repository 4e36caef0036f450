package client

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // the handshake of WebSockets is made of it
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// websocket is the little of RFC 6455 that a client of ours needs.
type websocket struct {
	conn io.ReadWriteCloser
	r    *bufio.Reader

	mu     sync.Mutex // of writes
	closed bool
}

// The kinds of messages, as their frames name them.
const (
	contMessage   = 0x0
	textMessage   = 0x1
	binaryMessage = 0x2
	closeMessage  = 0x8
	pingMessage   = 0x9
	pongMessage   = 0xA
)

// maxMessage bounds one message of a server.
const maxMessage = 16 << 20

var (
	errNoSocket  = errors.New("the server does not speak WebSocket here")
	errBadSocket = errors.New("the server breaks the rules of WebSocket")
)

// dial opens a WebSocket. When ctx ends, so does it.
func (c *Client) dial(ctx context.Context, r request) (*websocket, error) {
	nonce := make([]byte, 16)
	_, _ = rand.Read(nonce) // never fails
	key := base64.StdEncoding.EncodeToString(nonce)
	r.header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {key}}
	res, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	conn, ok := res.Body.(io.ReadWriteCloser)
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // as the RFC has it
	if !ok || res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Sec-Websocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]) {
		_ = res.Body.Close()
		return nil, errNoSocket
	}
	return newWebsocket(conn), nil
}

func newWebsocket(conn io.ReadWriteCloser) *websocket {
	return &websocket{conn: conn, r: bufio.NewReaderSize(conn, 64<<10)}
}

// close lets the connection go, which also ends a read.
func (s *websocket) close() { _ = s.conn.Close() }

// socketClosed is the end of a socket, as the server told it.
type socketClosed struct {
	code   int
	reason string
}

func (e *socketClosed) Error() string {
	return fmt.Sprintf("the server closed the connection with %d %s", e.code, e.reason)
}

// read returns the next message of text or bytes. Pings are answered meanwhile.
func (s *websocket) read() (kind byte, message []byte, err error) {
	for {
		op, last, data, err := s.frame(maxMessage - len(message))
		if err != nil {
			return 0, nil, err
		}
		switch op {
		case pingMessage:
			if err := s.write(pongMessage, data); err != nil {
				return 0, nil, err
			}
			continue
		case pongMessage:
			continue
		case closeMessage:
			end := &socketClosed{code: 1005}
			if len(data) >= 2 {
				end.code, end.reason = int(binary.BigEndian.Uint16(data)), string(data[2:])
			}
			_ = s.write(closeMessage, data) // the server may have gone
			return 0, nil, end
		case textMessage, binaryMessage:
			if kind != 0 {
				return 0, nil, errBadSocket
			}
			kind = op
		case contMessage:
			if kind == 0 {
				return 0, nil, errBadSocket
			}
		default:
			return 0, nil, errBadSocket
		}
		if message = append(message, data...); last {
			return kind, message, nil
		}
	}
}

func (s *websocket) frame(most int) (op byte, last bool, data []byte, err error) {
	var head [10]byte
	if _, err := io.ReadFull(s.r, head[:2]); err != nil {
		return 0, false, nil, err
	}
	op, last = head[0]&0x0f, head[0]&0x80 != 0
	size := uint64(head[1] & 0x7f)
	control := op >= closeMessage
	if head[0]&0x70 != 0 || head[1]&0x80 != 0 || control && (size > 125 || !last) {
		return 0, false, nil, errBadSocket
	}
	switch size {
	case 126:
		if _, err := io.ReadFull(s.r, head[:2]); err != nil {
			return 0, false, nil, err
		}
		size = uint64(binary.BigEndian.Uint16(head[:]))
	case 127:
		if _, err := io.ReadFull(s.r, head[:8]); err != nil {
			return 0, false, nil, err
		}
		size = binary.BigEndian.Uint64(head[:])
	}
	if !control && size > uint64(max(most, 0)) { //nolint:gosec // not negative
		return 0, false, nil, errBadSocket
	}
	// Grown as it comes: what a frame says of its size is only a word.
	data, err = io.ReadAll(io.LimitReader(s.r, int64(size))) //nolint:gosec // bounded above
	if err == nil && uint64(len(data)) < size {
		err = io.ErrUnexpectedEOF
	}
	return op, last, data, err
}

// write sends one message, masked as a client must.
func (s *websocket) write(op byte, data []byte) error {
	frame := make([]byte, 0, len(data)+14)
	frame = append(frame, 0x80|op)
	switch n := len(data); {
	case n < 126:
		frame = append(frame, 0x80|byte(n))
	case n <= 0xffff:
		frame = binary.BigEndian.AppendUint16(append(frame, 0x80|126), uint16(n)) //nolint:gosec // bounded here
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 0x80|127), uint64(n))
	}
	var mask [4]byte
	_, _ = rand.Read(mask[:]) // never fails
	frame = append(frame, mask[:]...)
	for i, b := range data {
		frame = append(frame, b^mask[i%4])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return io.ErrClosedPipe
	}
	s.closed = op == closeMessage
	_, err := s.conn.Write(frame)
	return err
}
