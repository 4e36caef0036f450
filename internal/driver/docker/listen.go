package docker

import (
	"context"
	"time"

	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"
)

// listen hears from the engine which sandboxes run out of memory, until the
// driver is closed. The end of a sandbox is not learned here: its channel
// breaks at once, whatever the engine is busy with.
func (d *Driver) listen() {
	defer close(d.listened)
	const pause = time.Second
	for d.life.Err() == nil {
		d.hear()
		select {
		case <-d.life.Done():
		case <-time.After(pause): // the engine is away
		}
	}
}

// hear follows one stream of events to its end.
func (d *Driver) hear() {
	ctx, cancel := context.WithCancelCause(d.life)
	defer cancel(nil)
	stream := d.api.Events(ctx, client.EventsListOptions{
		Filters: client.Filters{}.Add("label", labelState+"="+d.id).Add("event", string(events.ActionOOM)),
	})
	for {
		select {
		case m := <-stream.Messages:
			b, ok := d.roster.Get(m.Actor.Attributes[labelSandbox])
			if m.Action == events.ActionOOM && ok {
				b.endForMemory()
			}
		case err := <-stream.Err:
			if d.life.Err() == nil {
				d.config.Logger.Debug("the engine's events broke off", "error", err)
			}
			return
		}
	}
}
