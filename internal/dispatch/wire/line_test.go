package wire

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/live"
)

// lined is carried once all of its lines are open.
func lined(t *testing.T, rc dispatch.Receiver) *stream {
	t.Helper()
	s := carried(t, rc).(*stream)
	for s.lines.count() < lineCount {
		if t.Context().Err() != nil {
			t.Fatal("the lines were never opened")
		}
		runtime.Gosched()
	}
	return s
}

func (l *lines) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.free)
}

func TestSandboxesOverLines(t *testing.T) {
	t.Parallel()
	dispatchtest.RunHost(t, dispatchtest.HostHarness{New: func(t *testing.T, rc dispatch.Receiver) dispatch.Host { return lined(t, rc) }})
}

// patient is a worker that answers RunExec when it is told to.
type patient struct {
	*dispatchtest.Boxes
	begun chan string
	goOn  chan struct{}
}

func (s *patient) RunExec(ctx context.Context, c live.Command, _ time.Duration) (*live.ExecEnded, error) {
	s.begun <- c.ID
	select {
	case <-s.goOn:
		return nil, nil
	case <-ctx.Done():
		return nil, fault.New(fault.Unavailable, "given up: %w", context.Cause(ctx))
	}
}

func command(id string) live.Command {
	return live.Command{ID: id, Sandbox: "b1", Command: []string{"true"}}
}

// More calls than lines go over the stream, none waits for another, and the lines
// are as many as before when all are over.
func TestMoreCallsThanLines(t *testing.T) {
	t.Parallel()
	const calls = 3 * lineCount
	w := &patient{Boxes: &dispatchtest.Boxes{}, begun: make(chan string, calls), goOn: make(chan struct{})}
	s := lined(t, w)
	var under sync.WaitGroup
	for i := range calls {
		under.Go(func() {
			if _, err := s.RunExec(t.Context(), command(fmt.Sprint("e", i)), time.Millisecond); err != nil {
				t.Error(err)
			}
		})
	}
	for range calls {
		<-w.begun
	}
	if n := s.lines.count(); n != 0 {
		t.Errorf("%d lines are free", n)
	}
	close(w.goOn)
	under.Wait()
	if n := s.lines.count(); n != lineCount {
		t.Errorf("%d lines are free afterwards", n)
	}
}

func TestWhoGivesUpALineEndsTheCall(t *testing.T) {
	t.Parallel()
	w := &patient{Boxes: &dispatchtest.Boxes{}, begun: make(chan string, 1), goOn: make(chan struct{})}
	s := lined(t, w)
	ctx, giveUp := context.WithCancel(t.Context())
	go func() {
		<-w.begun
		giveUp()
	}()
	if _, err := s.RunExec(ctx, command("e"), time.Millisecond); !fault.Is(err, fault.Unavailable) {
		t.Errorf("got %v", err)
	}
}

// A worker's end that breaks, lies or says too much.
func TestLinesThatAreNotWell(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"nothing":      "",
		"no HTTP":      "what?\r\n\r\n",
		"half":         "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
		"no JSON":      "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nxyz",
		"out of bound": "HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\n{\"ended\":{\"id\":\"../../x\"}}",
		"a long head":  "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxLineAnswer+1),
		"too much":     "HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n" + strings.Repeat(" ", maxRan+1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			boxes := &dispatchtest.Boxes{}
			s := lined(t, boxes)
			if _, err := s.OpenSandbox(t.Context(), live.Order{ID: "b1"}); err != nil {
				t.Fatal(err)
			}
			for s.lines.take() != nil { // only the bad one is left
			}
			ours, theirs := net.Pipe()
			n := newLine(newConn(ours, ours))
			s.lines.add(n)
			go func() {
				defer func() { _ = theirs.Close() }()
				r, err := http.ReadRequest(bufio.NewReader(theirs))
				if err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(theirs, answer)
				}
			}()
			_, err := s.RunExec(t.Context(), live.Command{ID: "e", Sandbox: "b1", Command: []string{"echo"}}, time.Millisecond)
			said := name == "nothing" || name == "no HTTP" || name == "a long head" // there was no answer, so it went over the stream
			if said != (err == nil) || err != nil && !fault.Is(err, fault.Unavailable) {
				t.Errorf("got %v", err)
			}
			if name != "out of bound" && name != "no JSON" && s.lines.count() != 0 {
				t.Error("it is used again")
			}
		})
	}
}

// An answer that stops in its middle is waited for as long as somebody waits.
func TestWhoGivesUpInTheMiddleOfAnAnswer(t *testing.T) {
	t.Parallel()
	s := lined(t, &dispatchtest.Boxes{})
	for s.lines.take() != nil { // only the bad one is left
	}
	ours, theirs := net.Pipe()
	defer theirs.Close()
	s.lines.add(newLine(newConn(ours, ours)))
	ctx, giveUp := context.WithCancel(t.Context())
	go func() {
		r, err := http.ReadRequest(bufio.NewReader(theirs))
		if err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
		}
		giveUp()
	}()
	if _, err := s.RunExec(ctx, command("e"), time.Millisecond); !fault.Is(err, fault.Unavailable) {
		t.Errorf("got %v", err)
	}
}

// A worker that opens and closes lines as it likes fills nothing.
func TestNewLinesTakeThePlaceOfOldOnes(t *testing.T) {
	t.Parallel()
	var l lines
	var all []*line
	for range 10 * lineCount {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		n := newLine(newConn(ours, ours))
		all = append(all, n)
		if !l.add(n) {
			t.Error("it was refused, and there was room")
		}
	}
	if len(l.all) != lineCount || len(l.free) != lineCount {
		t.Errorf("%d lines, %d of them free", len(l.all), len(l.free))
	}
	for i, n := range all {
		select {
		case <-n.c.closed:
			if i >= len(all)-lineCount {
				t.Error("a new one was closed")
			}
		default:
			if i < len(all)-lineCount {
				t.Error("an old one is open")
			}
		}
	}
	for l.take() != nil {
	}
	for i := range 2 * lineCount { // while all that come are in use
		ours, theirs := net.Pipe()
		defer theirs.Close()
		if took := l.add(newLine(newConn(ours, ours))); took != (i < lineCount) {
			t.Errorf("line %d beside %d in use: %v", i, len(l.all), took)
		}
		l.take()
	}
}

func TestLinesEndWithTheStream(t *testing.T) {
	t.Parallel()
	var l lines
	ours, theirs := net.Pipe()
	defer theirs.Close()
	n := &line{c: newConn(ours, ours)}
	if !l.add(n) {
		t.Fatal("it was not taken")
	}
	l.end()
	select {
	case <-n.c.closed:
	default:
		t.Error("it is open")
	}
	if l.add(n) || l.take() != nil {
		t.Error("it can be used")
	}
	l.give(n)
	if l.count() != 0 {
		t.Error("it was taken back")
	}
}
