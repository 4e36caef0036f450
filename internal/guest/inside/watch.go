package inside

import "github.com/aurea-dev/aurea/internal/guest/wire"

// openWatch tells a channel of changes to files.
func (e *Engine) openWatch(ch *channel, open wire.Open) *wire.Opened {
	if e.watches >= maxWatches {
		return refused(wire.StatusExhausted, "the sandbox has as many watches as it may")
	}
	e.watches++
	ch.command = newStanding(e)
	go ch.command.watch(ch, open)
	return nil
}

// watch is the goroutine of a watch.
func (c *command) watch(ch *channel, open wire.Open) {
	w, err := c.e.system.watch(open.Path, open.File.Recursive)
	if !c.begin(ch, err, func() { w.stop() }) {
		if err == nil {
			w.stop()
			_ = w.run(nil) // lets go of what it holds
		}
		c.e.mu.Lock()
		c.e.watches--
		c.e.mu.Unlock()
		return
	}
	err = w.run(&sink{e: c.e, c: c, s: c.streams[0]})
	c.settle(fileOutcome(err), &c.e.watches)
}
