package inside

import (
	"fmt"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// batch is how much the writer says in one go.
const batch = 64 << 10

// speak writes what is to be said, and sleeps when there is nothing.
func (e *Engine) speak(done <-chan struct{}) error {
	for {
		e.saying.Lock()
		n, err := e.say()
		e.saying.Unlock()
		if err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		select {
		case <-e.wake:
		case <-done:
			return nil
		}
	}
}

// say writes what is to be said now, and returns how much that was. saying is
// held, so that frames come in order.
func (e *Engine) say() (int, error) {
	e.words = e.next(e.words[:0])
	if len(e.words) == 0 {
		return 0, nil
	}
	n, err := e.out.Write(e.words)
	if err != nil {
		return n, fmt.Errorf("write to the worker: %w", err)
	}
	return n, nil
}

// sayNow is notify for who has nothing else to do: it speaks itself, unless the
// writer does just now, because a wake is two trips to the kernel.
func (e *Engine) sayNow() {
	if e.saying.TryLock() {
		defer e.saying.Unlock()
		for range rounds { // of each stream a round says one frame
			if n, err := e.say(); err == nil && n == 0 {
				return
			}
		}
	}
	e.notify()
}

// rounds is how much somebody else says than the writer.
const rounds = 4

// next appends to b whole frames of what is to be said now, in order of
// weight: a new session, answers, then the channels in turn.
func (e *Engine) next(b []byte) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.welcome != nil {
		b = wire.AppendFrame(b, wire.TypeWelcome, 0, 0, e.welcome[:])
		e.welcome = nil
	}
	b = append(b, e.replies...)
	e.replies = nil
	if e.hushed {
		return b
	}
	for range e.channels {
		if len(b) >= batch {
			return b
		}
		ch := e.channels[0]
		b = ch.speak(b)
		e.channels = e.channels[1:]
		if !ch.over() {
			// To the back, so that one talkative command does not silence others.
			e.channels = append(e.channels, ch)
		}
	}
	return b
}

// over reports that nothing will ever be said on the channel again, nor asked.
// The channel of a command stays until the worker lets go of it.
func (ch *channel) over() bool {
	if !ch.said {
		return false
	}
	if ch.outcome.Status != wire.StatusOK {
		return true
	}
	return ch.command.transfer && ch.exited && ch.endSent[0] && ch.endSent[1]
}

// speak appends what there is to say on a channel, at most a frame per stream.
func (ch *channel) speak(b []byte) []byte {
	if ch.outcome == nil {
		return b
	}
	if !ch.said {
		ch.said = true
		b = wire.AppendFrame(b, wire.TypeOpened, 0, ch.id, ch.outcome.Append(nil))
	}
	if ch.outcome.Status != wire.StatusOK {
		return b
	}
	for i := range ch.command.streams {
		b = ch.speakStream(b, i)
	}
	if c := ch.command; c.exit != nil && !ch.exited {
		ch.exited = true
		b = wire.AppendFrame(b, wire.TypeExit, 0, ch.id, c.exit.Append(nil))
	}
	return b
}

func (ch *channel) speakStream(b []byte, i int) []byte {
	s := ch.command.streams[i]
	data := s.from(ch.sent[i], min(wire.MaxOutput, wire.Window-int(ch.sent[i]-ch.taken[i])))
	end := s.closed && ch.sent[i]+int64(len(data)) == s.end()
	if len(data) == 0 && (!end || ch.endSent[i]) {
		return b
	}
	var flags uint8
	if end {
		flags = wire.FlagEnd
		ch.endSent[i] = true
	}
	out := wire.Output{Stream: uint8(i + 1), Offset: ch.sent[i], Data: data}
	ch.sent[i] += int64(len(data))
	return wire.AppendFrame(b, wire.TypeOutput, flags, ch.id, out.Append(nil))
}
