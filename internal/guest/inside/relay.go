package inside

import (
	"io"
	"os"
	"time"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// Bounds of what a worker may hold open at once.
const (
	maxRelays  = 256
	maxWatches = 64
)

// openRelay connects a channel to a port.
func (e *Engine) openRelay(ch *channel, open wire.Open) *wire.Opened {
	if e.relays >= maxRelays {
		return refused(wire.StatusExhausted, "the sandbox has as many connections as it may")
	}
	e.relays++
	ch.command = newStanding(e)
	go ch.command.relay(ch, open)
	return nil
}

// newStanding returns a command for what stands open and may stand still.
func newStanding(e *Engine) *command {
	c := newCommand(e, "")
	c.transfer = true
	c.streams[0].most = wire.SmallWindow
	c.streams[1].closed = true
	return c
}

// relay is the goroutine of a connection.
func (c *command) relay(ch *channel, open wire.Open) {
	conn, err := c.e.system.dial(open.Port)
	if !c.begin(ch, err, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) {
		if err == nil {
			_ = conn.Close()
		}
		c.e.mu.Lock()
		c.e.relays--
		c.e.mu.Unlock()
		return
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		c.send(conn)
	}()
	err = c.receive(conn)
	<-sent
	_ = conn.Close()
	c.settle(fileOutcome(err), &c.e.relays)
}

// begin says how an Open has ended. It is false when there is nothing to go on
// with: it failed, or nobody waits for it any more.
func (c *command) begin(ch *channel, err error, stop func()) bool {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	defer c.e.notify()
	ch.outcome = &wire.Opened{Outcome: fileOutcome(err)}
	if err != nil {
		return false
	}
	if c.aborted {
		c.finish(wire.Outcome{Status: wire.StatusConflict})
		return false
	}
	c.stop = stop
	return true
}

// settle is the end of what stood open.
func (c *command) settle(o wire.Outcome, count *int) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	*count--
	c.stop = nil
	c.finish(o)
}

// send carries the channel's input to the connection.
func (c *command) send(conn *os.File) {
	_, err := io.CopyBuffer(onlyWriter{conn}, onlyReader{c.input}, make([]byte, wire.MaxOutput))
	if err == nil {
		closeWrite(conn)
		return
	}
	c.e.mu.Lock()
	c.input.leave()
	c.e.mu.Unlock()
}

// receive carries what the connection brings to the channel.
func (c *command) receive(conn *os.File) error {
	out := &sink{e: c.e, c: c, s: c.streams[0]}
	b := make([]byte, wire.MaxOutput)
	for {
		room := out.wait()
		if room == 0 {
			return errAborted
		}
		n, err := conn.Read(b[:min(room, len(b))])
		if n > 0 {
			out.add(b[:n])
		}
		if err != nil {
			out.close()
			if err == io.EOF { //nolint:errorlint // package os returns it bare
				return nil
			}
			c.abandon() // nobody takes what is sent, either
			return err
		}
	}
}

// abandon ends the other direction of a connection that broke.
func (c *command) abandon() {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.abort()
}
