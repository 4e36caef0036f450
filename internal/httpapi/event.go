package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// maxWords bounds a list in a filter.
const maxWords = 50

// Cursor says where in the record to begin, and in which form to answer.
type Cursor struct {
	Exchange
	After       Optional[int64] `query:"after" minimum:"0" doc:"Only events with a larger seq; 0 is from the beginning."`
	LastEventID Optional[int64] `header:"Last-Event-ID" minimum:"0" doc:"As after; browsers send it when they reconnect. It goes before after."`
	Limit       int             `query:"limit" minimum:"1" maximum:"1000" default:"200" doc:"At most so many, where the answer is a list."`
	Accept      string          `header:"Accept" doc:"text/event-stream or application/json."`
}

type eventsInput struct {
	Cursor
	Type       string `query:"type" maxLength:"2000" doc:"Only these types, separated by commas." example:"job.completed,job.failed"`
	JobID      string `query:"job_id" maxLength:"100" doc:"Only of this job."`
	RootJobID  string `query:"root_job_id" maxLength:"100" doc:"Only of the jobs of this plan."`
	ProjectID  int64  `query:"project_id" minimum:"0" doc:"Only of this project."`
	EntityType string `query:"entity_type" maxLength:"2000" doc:"Only of these sorts of thing (job, worker, manager), separated by commas."`
	EntityID   string `query:"entity_id" maxLength:"2000" doc:"Only of these things, separated by commas."`
}

type jobEventsInput struct {
	Cursor
	ID string `path:"id" format:"uuid" doc:"The id of the job."`
}

func (a *API) registerEvents() {
	sse := []string{"text/event-stream"}
	register(a, route{
		method: http.MethodGet, path: "/events", action: policy.Read, id: "followEvents", tag: "events", summary: "Follow events", answers: sse, list: event.Event{},
		detail: "Server-sent events: id is the event's seq, event its type, data the event as JSON. Starts with what happens from now on, unless after or Last-Event-ID say where. Nothing is lost by a slow reader, nor by one that reconnects with its last id. With Accept: application/json it answers a list instead, from after on, with the next page in the Link header.",
	}, a.events)
	register(a, route{
		method: http.MethodGet, path: "/jobs/{id}/events", action: policy.Read, id: "listJobEvents", tag: "events", summary: "List the events of a job", answers: sse, list: event.Event{},
		detail: "A list, oldest first, with the next page in the Link header. With Accept: text/event-stream it follows the events instead, from the first one on.",
	}, a.jobEvents)
}

func (a *API) events(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
	if prefers(in.Accept, "application/json", "text/event-stream") {
		return a.eventList(ctx, &in.Cursor, f)
	}
	return a.eventStream(ctx, &in.Cursor, f, in.given())
}

func (a *API) jobEvents(ctx context.Context, in *jobEventsInput) (*huma.StreamResponse, error) {
	if _, err := a.cfg.Manager.Job(ctx, in.ID); err != nil {
		return nil, err
	}
	f := event.Filter{JobID: in.ID, After: in.after()}
	if prefers(in.Accept, "text/event-stream", "application/json") {
		return a.eventStream(ctx, &in.Cursor, f, true)
	}
	return a.eventList(ctx, &in.Cursor, f)
}

// prefers reports whether a client asked for one media type by name and not,
// or later, for the other.
func prefers(accept, one, other string) bool {
	i, j := strings.Index(accept, one), strings.Index(accept, other)
	return i >= 0 && (j < 0 || i < j)
}

func (c *Cursor) given() bool { return c.After.Set || c.LastEventID.Set }

func (c *Cursor) after() int64 {
	if c.LastEventID.Set {
		return c.LastEventID.Value
	}
	return c.After.Value
}

func (in *eventsInput) filter() (event.Filter, error) {
	f := event.Filter{After: in.after(), JobID: in.JobID, RootID: in.RootJobID, ProjectID: in.ProjectID}
	types, err := words("query.type", in.Type)
	if err != nil {
		return f, err
	}
	for _, t := range types {
		f.Types = append(f.Types, event.Type(t))
	}
	if f.Entities, err = words("query.entity_type", in.EntityType); err != nil {
		return f, err
	}
	if f.EntityIDs, err = words("query.entity_id", in.EntityID); err != nil {
		return f, err
	}
	if err := checkPrintable("query.job_id", in.JobID); err != nil {
		return f, err
	}
	return f, checkPrintable("query.root_job_id", in.RootJobID)
}

// words splits a list of words at its commas.
func words(field, list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	if err := checkPrintable(field, list); err != nil {
		return nil, err
	}
	var out []string
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word != "" {
			out = append(out, word)
		}
	}
	if len(out) == 0 || len(out) > maxWords {
		return nil, fault.Field(field, "must have 1 to %d words, separated by commas", maxWords)
	}
	return out, nil
}

// eventList answers with one page of the record.
func (a *API) eventList(ctx context.Context, c *Cursor, f event.Filter) (*huma.StreamResponse, error) {
	events, err := a.cfg.Manager.Events(ctx, f, c.Limit+1)
	if err != nil {
		return nil, err
	}
	link := ""
	if len(events) > c.Limit || store.Full(events, store.EventBytes) {
		events = events[:min(len(events), c.Limit)]
		link = nextLink(c.r.URL, "after", strconv.FormatInt(events[len(events)-1].Seq, 10))
	}
	if events == nil {
		events = []event.Event{}
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		if link != "" {
			c.w.Header().Set("Link", link)
		}
		writeJSON(c.w, http.StatusOK, events)
	}}, nil
}
