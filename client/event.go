package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Event is one stored fact. Seq is its cursor.
type Event struct {
	Seq       int64           `json:"seq"`
	Type      string          `json:"type"`
	Version   int             `json:"version"`
	Entity    string          `json:"entity_type"`
	EntityID  string          `json:"entity_id"`
	JobID     string          `json:"job_id,omitempty"`
	RootJobID string          `json:"root_job_id,omitempty"`
	ProjectID int64           `json:"project_id,omitempty"`
	Actor     string          `json:"actor"`
	At        time.Time       `json:"ts"`
	Details   json.RawMessage `json:"details,omitempty"`
}

// EventFilter chooses events. Zero fields choose all.
type EventFilter struct {
	Types     []string
	JobID     string
	RootJobID string
	ProjectID int64
}

func (f EventFilter) query() url.Values {
	q := url.Values{}
	if len(f.Types) > 0 {
		q.Set("type", strings.Join(f.Types, ","))
	}
	if f.JobID != "" {
		q.Set("job_id", f.JobID)
	}
	if f.RootJobID != "" {
		q.Set("root_job_id", f.RootJobID)
	}
	if f.ProjectID != 0 {
		q.Set("project_id", strconv.FormatInt(f.ProjectID, 10))
	}
	return q
}

// eventPage is how many stored events are asked for at once.
const eventPage = 500

// Events returns the stored events after a cursor, in order, and ends at the
// newest. After 0 comes the first.
func (c *Client) Events(ctx context.Context, f EventFilter, after int64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			r := get("events")
			r.query = f.query()
			r.query.Set("after", strconv.FormatInt(after, 10))
			r.query.Set("limit", strconv.Itoa(eventPage))
			var page []Event
			if _, err := c.call(ctx, r, &page); err != nil {
				yield(Event{}, err)
				return
			}
			for _, e := range page {
				if after = e.Seq; !yield(e, nil) {
					return
				}
			}
			if len(page) < eventPage {
				return
			}
		}
	}
}

// Now is the cursor with which Follow gives only events that are still to come.
const Now int64 = -1

// Follow returns the events after a cursor and then each new one as it comes.
// When the connection breaks it comes back where it was; nothing is missed and
// nothing is doubled. It ends with ctx, silently, or with an error that coming
// back cannot mend.
func (c *Client) Follow(ctx context.Context, f EventFilter, after int64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for failures := 0; ; {
			before := after
			stop, err := c.followOnce(ctx, f, &after, yield)
			if stop || ctx.Err() != nil {
				return
			}
			if err != nil && !passing(err) {
				yield(Event{}, err)
				return
			}
			if failures++; after != before || err == nil {
				failures = 1
			}
			if pause(ctx, backoff(failures)) != nil {
				return
			}
		}
	}
}

// followOnce reads one connection to its end. stop says that the loop wants no
// more.
func (c *Client) followOnce(ctx context.Context, f EventFilter, after *int64, yield func(Event, error) bool) (stop bool, err error) {
	r := get("events")
	r.query, r.accept = f.query(), "text/event-stream"
	if *after >= 0 {
		r.query.Set("after", strconv.FormatInt(*after, 10))
		r.header = http.Header{"Last-Event-Id": {strconv.FormatInt(*after, 10)}}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body, err := c.stream(ctx, r)
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }()
	quiet := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer quiet.Stop()
	frames := newFrameReader(lively{body, quiet})
	for {
		frame, err := frames.next()
		if err != nil {
			if errors.Is(err, errFrameTooLarge) {
				return false, err
			}
			return false, ended(c.Server(), err)
		}
		if frame.data == "" { // an id alone passes over what the filter left out
			if seq, err := strconv.ParseInt(frame.id, 10, 64); err == nil {
				*after = max(*after, seq)
			}
			continue
		}
		var e Event
		if err := json.Unmarshal([]byte(frame.data), &e); err != nil {
			return false, fmt.Errorf("read an event of %s: %w", c.Server(), err)
		}
		if e.Seq <= *after {
			continue
		}
		*after = e.Seq
		if !yield(e, nil) {
			return true, nil
		}
	}
}

// silence is how long a stream may be quiet. A server says something every 15
// seconds; one that says nothing for three times that is gone.
const silence = 45 * time.Second

var errSilent = errors.New("the server has gone silent")

// lively puts off the end of patience with each sign of life.
type lively struct {
	r     io.Reader
	quiet *time.Timer
}

func (l lively) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	l.quiet.Reset(silence)
	return n, err
}

// ended turns the end of a stream into nil, and a break into an Unreachable.
func ended(server string, err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return &Unreachable{Server: server, Err: err}
}
