package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

// frame is one message of a stream of server-sent events.
type frame struct {
	id    string
	event string
	data  string
}

// maxFrame bounds one message; an event can carry a whole PRD.
const maxFrame = 32 << 20

// errFrameTooLarge means that the other side is no server of ours.
var errFrameTooLarge = errors.New("a message of the event stream is too large")

// frameReader reads a stream of server-sent events.
type frameReader struct {
	r       *bufio.Reader
	afterCR bool
}

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, 32<<10)}
}

// next returns the next message. A message that the end of the stream cut off
// is dropped, as the format demands.
func (f *frameReader) next() (frame, error) {
	var m frame
	var data []string
	size, some := 0, false
	for {
		line, err := f.line(maxFrame - size)
		if err != nil {
			return frame{}, err
		}
		if len(line) == 0 {
			if some {
				m.data = strings.Join(data, "\n")
				return m, nil
			}
			continue
		}
		size += len(line)
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "id":
			m.id, some = string(value), true
		case "event":
			m.event, some = string(value), true
		case "data":
			data, some = append(data, string(value)), true
		}
	}
}

// line returns the next line without its end, which is \n, \r\n or \r.
func (f *frameReader) line(most int) ([]byte, error) {
	var line []byte
	for {
		b, err := f.r.ReadByte()
		if err != nil {
			return nil, err
		}
		belongs := f.afterCR && b == '\n' // to the \r before it
		if f.afterCR = false; belongs {
			continue
		}
		switch {
		case b == '\n':
			return line, nil
		case b == '\r':
			f.afterCR = true
			return line, nil
		case len(line) >= most:
			return nil, errFrameTooLarge
		}
		line = append(line, b)
	}
}
