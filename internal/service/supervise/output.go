package supervise

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Output merges what the children print, line by line, each under the name of
// its child.
type Output struct {
	json  bool
	width int

	mu sync.Mutex
	to io.Writer
}

// NewOutput returns an output that writes to w: plain lines behind the name,
// padded to width; or, asJSON, one object per line, where a line that is an
// object already is passed on with the name put in.
func NewOutput(w io.Writer, asJSON bool, width int) *Output {
	return &Output{json: asJSON, width: width, to: w}
}

// maxLine bounds a line; a longer one is passed on in pieces.
const maxLine = 64 << 10

// copy passes lines on until r ends.
func (o *Output) copy(name string, r io.Reader) {
	br := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := br.ReadSlice('\n') // a full buffer is an error too, and a piece
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			o.Line(name, line)
		}
		if err != nil && err != bufio.ErrBufferFull { //nolint:errorlint // bufio returns it bare
			return
		}
	}
}

// Line writes one line.
func (o *Output) Line(name string, line []byte) {
	var b bytes.Buffer
	if o.json {
		o.object(&b, name, line)
	} else {
		fmt.Fprintf(&b, "%-*s | %s\n", o.width, name, printable(line))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = o.to.Write(b.Bytes()) // where there is no reader, there is nobody to tell
}

func (o *Output) object(b *bytes.Buffer, name string, line []byte) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) == nil && fields != nil {
		if _, ok := fields["process"]; !ok {
			label, _ := json.Marshal(name)
			body := bytes.TrimSpace(line)[1:]
			b.WriteString(`{"process":`)
			b.Write(label)
			if len(fields) > 0 {
				b.WriteByte(',')
			}
			b.Write(body)
			b.WriteByte('\n')
			return
		}
		b.Write(line)
		b.WriteByte('\n')
		return
	}
	text, _ := json.Marshal(struct {
		Process string    `json:"process"`
		Time    time.Time `json:"time"`
		Level   string    `json:"level"`
		Message string    `json:"msg"`
	}{name, time.Now().UTC(), "INFO", strings.ToValidUTF8(string(line), "\uFFFD")})
	b.Write(text)
	b.WriteByte('\n')
}

// printable takes out what could move a terminal's cursor. Children write into
// a pipe and colour nothing.
func printable(line []byte) []byte {
	return bytes.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, line)
}
