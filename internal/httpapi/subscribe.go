package httpapi

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
)

// Subscription is what a reader of a socket wants to see. The filters are
// ANDed; one that is left out lets everything through.
type Subscription struct {
	Type        string   `json:"type" enum:"subscribe" doc:"What the message is."`
	EventTypes  WordList `json:"event_types,omitempty" doc:"Only these types."`
	EntityTypes WordList `json:"entity_types,omitempty" doc:"Only of these sorts of thing (job, worker, manager)."`
	EntityIDs   WordList `json:"entity_ids,omitempty" doc:"Only of these things."`
	JobID       string   `json:"job_id,omitempty" maxLength:"100" doc:"Only of this job."`
	RootJobID   string   `json:"root_job_id,omitempty" maxLength:"100" doc:"Only of the jobs of this plan."`
	ProjectID   int64    `json:"project_id,omitempty" minimum:"0" doc:"Only of this project."`
	After       *int64   `json:"after,omitempty" minimum:"0" doc:"Go to this place in the record; without it the reader goes on where it is."`
}

// WordList is a list of words: a JSON list, or one string with commas.
type WordList []string

// Schema describes it to OpenAPI.
func (WordList) Schema(huma.Registry) *huma.Schema {
	text := &huma.Schema{Type: huma.TypeString}
	return &huma.Schema{OneOf: []*huma.Schema{text, {Type: huma.TypeArray, Items: text}}}
}

// bind reads either form.
func (l *WordList) bind(b *binding, path string, raw json.RawMessage) {
	var list []string
	switch kind(raw) {
	case "null":
		return
	case "a string":
		list = strings.Split(text(raw), ",")
	case "a list":
		parts, fit := elements(raw, maxWords)
		if !fit {
			b.wrong(path, "has more than %d elements", maxWords)
			return
		}
		for i, part := range parts {
			if !b.is(element(path, i), part, "a string") {
				return
			}
			list = append(list, text(part))
		}
	default:
		b.wrong(path, "must be a list of words or a string with commas, not %s", kind(raw))
		return
	}
	*l = list
}

// message is what every message of a reader has.
type message struct {
	_    struct{} `additionalProperties:"true"`
	Type string   `json:"type"`
}

// decodeMessage reads a message of a reader. The subscription is nil unless it
// is one.
func decodeMessage(raw []byte) (string, *Subscription, error) {
	var m message
	if err := bind(raw, &m); err != nil {
		return "", nil, err
	}
	if m.Type != "subscribe" {
		return m.Type, nil, nil
	}
	s := &Subscription{}
	if err := bind(raw, s); err != nil {
		return m.Type, nil, err
	}
	return m.Type, s, nil
}

// querySubscription reads the subscription with which a socket is opened.
func querySubscription(q url.Values) (*Subscription, error) {
	known := []string{"event_types", "entity_types", "entity_ids", "job_id", "root_job_id", "project_id", "after", "token"}
	for name, values := range q {
		if !slices.Contains(known, name) {
			return nil, fault.Field("query."+clip(name, 60), "is not known here; there are %s", strings.Join(known, ", "))
		}
		if len(values) > 1 {
			return nil, fault.Field("query."+name, "is there twice; separate words by commas")
		}
	}
	s := &Subscription{JobID: q.Get("job_id"), RootJobID: q.Get("root_job_id")}
	for name, list := range map[string]*WordList{"event_types": &s.EventTypes, "entity_types": &s.EntityTypes, "entity_ids": &s.EntityIDs} {
		if q.Get(name) != "" {
			*list = strings.Split(q.Get(name), ",")
		}
	}
	var err error
	if s.ProjectID, err = number(q, "project_id"); err != nil {
		return nil, err
	}
	if q.Has("after") {
		after, err := number(q, "after")
		if err != nil {
			return nil, err
		}
		s.After = &after
	}
	return s, nil
}

func number(q url.Values, name string) (int64, error) {
	if q.Get(name) == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil {
		return 0, fault.Field("query."+name, "must be a whole number")
	}
	return n, nil
}

// filter returns what the subscription lets through, from a place on.
func (s *Subscription) filter(after int64) (event.Filter, error) {
	if s.After != nil {
		after = *s.After
	}
	f := event.Filter{After: after, JobID: s.JobID, RootID: s.RootJobID, ProjectID: s.ProjectID}
	if after < 0 {
		return f, fault.Field("after", "must not be negative")
	}
	if s.ProjectID < 0 {
		return f, fault.Field("project_id", "must not be negative")
	}
	for field, id := range map[string]string{"job_id": s.JobID, "root_job_id": s.RootJobID} {
		if err := checkWord(field, id); err != nil {
			return f, err
		}
	}
	types, err := s.EventTypes.words("event_types")
	if err != nil {
		return f, err
	}
	for _, t := range types {
		f.Types = append(f.Types, event.Type(t))
	}
	if f.Entities, err = s.EntityTypes.words("entity_types"); err != nil {
		return f, err
	}
	f.EntityIDs, err = s.EntityIDs.words("entity_ids")
	return f, err
}

// words returns the words, checked; nil when there is no list.
func (l WordList) words(field string) ([]string, error) {
	var out []string
	for _, w := range l {
		if w = strings.TrimSpace(w); w == "" {
			continue
		}
		if err := checkWord(field, w); err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	if len(l) > 0 && len(out) == 0 || len(out) > maxWords {
		return nil, fault.Field(field, "must have 1 to %d words", maxWords)
	}
	return out, nil
}
