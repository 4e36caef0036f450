package inside

import (
	"os"
	"sync"
	"time"
)

// leftovers are the pipes of commands that have ended, which others still hold: a
// server that was started in the background, say. What those say is nobody's any
// more, but a program that writes where nobody reads is killed, or fails; so the
// guest goes on reading, and throws it away.
type leftovers struct {
	mu    sync.Mutex
	count int
}

const (
	// maxLeftovers is how many are read at once. Another one is closed.
	maxLeftovers = 64
	// leftoverPause is between two looks: who says more waits, and costs little.
	leftoverPause = 10 * time.Millisecond
	leftoverBytes = 16 << 10
)

// read takes a pipe over, until nobody holds it any more.
func (l *leftovers) read(f *os.File) {
	l.mu.Lock()
	full := l.count >= maxLeftovers
	if !full {
		l.count++
	}
	l.mu.Unlock()
	if full {
		_ = f.Close()
		return
	}
	go func() {
		defer func() {
			_ = f.Close()
			l.mu.Lock()
			l.count--
			l.mu.Unlock()
		}()
		b := make([]byte, leftoverBytes)
		for {
			if _, err := f.Read(b); err != nil {
				return
			}
			time.Sleep(leftoverPause)
		}
	}()
}

// leaveTo hands over those ends of a brief command that others hold.
func (n *lane) leaveTo(l *leftovers) {
	for i, held := range n.held {
		if held {
			l.read(os.NewFile(uintptr(n.out[i]), "output")) // it does not block: see pipes
			n.out[i] = -1
		}
	}
}
