package inside

import (
	"bytes"
	"testing"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// Who speaks in the writer's place says all there is, or wakes the writer: of each
// stream a round says one frame.
func TestWhoSpeaksSaysAll(t *testing.T) {
	t.Parallel()
	for _, frames := range []int{1, 2, rounds - 1, rounds, 3 * rounds} {
		var out bytes.Buffer
		e := newEngine(nil, &out)
		c := newCommand(e, "c")
		size := frames*wire.MaxOutput - 1
		c.streams[0].held = make([]byte, size)
		e.channels = []*channel{{id: 1, command: c, outcome: &wire.Opened{}}}
		e.sayNow()
		woken := len(e.wake) > 0
		if said := out.Len() > size; !said && (!woken || frames < rounds) {
			t.Errorf("of %d bytes %d were said, and the writer was woken: %v", size, out.Len(), woken)
		}
	}
}
