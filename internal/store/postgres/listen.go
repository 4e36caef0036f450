package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// askEvery is how often the listener asks although it is told, since nobody
// tells of a connection that went silent.
const askEvery = 2 * time.Second

// outputSuffix ends the name of the channel on which live output is told.
const outputSuffix = " output"

// listener wakes the watchers of this manager when another has committed.
type listener struct {
	store *Store
	conn  *conn
	last  int64 // the last event that was seen when it asked
}

// run listens until ctx ends.
func (l *listener) run(ctx context.Context) {
	defer close(l.store.listening)
	defer l.conn.close(context.WithoutCancel(ctx))
	pause := retryAfter
	for ctx.Err() == nil {
		err := l.listen(ctx, func() { pause = retryAfter })
		l.conn.close(context.WithoutCancel(ctx))
		if ctx.Err() != nil {
			return
		}
		l.store.log.Warn("the database does not tell of commits; trying again", "error", err)
		l.store.Wake() // nobody knows what was missed
		l.store.outputs.Wake()
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, retryAtMost)
	}
}

// listen passes on what the database tells, until that fails.
func (l *listener) listen(ctx context.Context, works func()) error {
	if err := l.conn.dial(ctx); err != nil {
		return err
	}
	for _, channel := range []string{l.store.channel, l.store.channel + outputSuffix} {
		if _, err := l.conn.c.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
	}
	works()
	for {
		// What came before the first question was told to nobody.
		if err := l.ask(ctx); err != nil {
			return err
		}
		if err := l.hear(ctx); err != nil {
			return err
		}
	}
}

// hear wakes the watchers at each word, until it is time to ask again.
func (l *listener) hear(ctx context.Context) error {
	round, cancel := context.WithTimeout(ctx, askEvery)
	defer cancel()
	for {
		told, err := l.conn.c.WaitForNotification(round)
		if err != nil && round.Err() != nil && ctx.Err() == nil && !l.conn.c.IsClosed() {
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case told.Payload == l.store.id: // our own woke them already
		case told.Channel == l.store.channel:
			l.store.Wake()
		default:
			l.store.outputs.Wake()
		}
	}
}

// ask looks for the last event.
func (l *listener) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var last int64
	if err := l.conn.c.QueryRow(ctx, `SELECT event FROM last_number`).Scan(&last); err != nil {
		return err
	}
	if last != l.last {
		l.last = last
		l.store.Wake()
	}
	return nil
}
