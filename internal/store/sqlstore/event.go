package sqlstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/store"
)

const (
	eventColumns = `type, version, entity, entity_id, job_id, root_id, project_id, actor, owner, at, data`
	eventWidth   = 11 // columns
	eventLast    = `SELECT seq FROM event ORDER BY seq DESC LIMIT 1`
)

type events struct{ *Tx }

func (t events) Append(ctx context.Context, list ...*event.Event) error {
	for part := range slices.Chunk(list, maxRows) {
		if err := t.append(ctx, part); err != nil {
			return fmt.Errorf("append event: %w", err)
		}
		t.appended += len(part)
	}
	return nil
}

// append stores events by one statement.
func (t events) append(ctx context.Context, list []*event.Event) error {
	args := make([]any, 0, len(list)*eventWidth)
	for _, e := range list {
		args = append(args, string(e.Type), e.Version, e.Entity, e.EntityID,
			e.JobID, e.RootID, e.ProjectID, e.Actor, e.Owner, micros(e.At), string(e.Data))
	}
	rows, last, err := t.q.Insert(ctx, Numbered{Table: "event", Columns: eventColumns, Width: eventWidth}, args)
	if err != nil {
		return err
	}
	for i, e := range list {
		e.Seq = last - rows + int64(i) + 1
	}
	return nil
}

func (t events) List(ctx context.Context, f event.Filter, limit int) ([]event.Event, error) {
	if limit < 1 {
		return nil, nil
	}
	query, args := eventList(f, limit)
	list, err := page(ctx, t.Tx, store.EventBytes, scanEvent, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	return list, nil
}

// eventList builds the query that agrees with event.Filter.Matches.
func eventList(f event.Filter, limit int) (string, []any) {
	var c conditions
	c.add("seq > ?", f.After)
	if f.JobID != "" {
		c.add("job_id = ? AND job_id <> ''", f.JobID) // the second term admits the partial index
	}
	switch {
	case f.RootID != "" && f.JobID != "": // a cast hides the column: the job's index is the better one
		c.add("CAST(root_id AS TEXT) = ?", f.RootID)
	case f.RootID != "":
		c.add("root_id = ? AND root_id <> ''", f.RootID)
	}
	if f.ProjectID != 0 {
		c.add("project_id = ?", f.ProjectID)
	}
	if f.Owner != "" {
		c.add("owner = ?", f.Owner)
	}
	addIn(&c, "type", f.Types)
	if f.JobID != "" || slices.Contains(f.EntityIDs, "") { // the job's index is the better one; the nameless have none
		addIn(&c, "entity_id", f.EntityIDs)
	} else {
		addEntities(&c, f)
	}
	addIn(&c, "entity", f.Entities)
	return `SELECT seq, ` + eventColumns + ` FROM event` + c.where() + ` ORDER BY seq` + c.limit(limit), c.args
}

// addEntities asks the two indexes in which entities are found: that of jobs,
// and that of all else.
func addEntities(c *conditions, f event.Filter) {
	if len(f.EntityIDs) == 0 {
		return
	}
	var others, jobs conditions
	others.args = c.args
	others.add("entity_id <> job_id AND seq > ?", f.After)
	addIn(&others, "entity_id", f.EntityIDs)
	jobs.args = others.args
	jobs.add("entity_id = job_id AND job_id <> '' AND seq > ?", f.After)
	addIn(&jobs, "job_id", f.EntityIDs)
	c.args = jobs.args
	c.terms = append(c.terms, `seq IN (SELECT seq FROM event`+others.where()+` UNION ALL SELECT seq FROM event`+jobs.where()+`)`)
}

func (t events) Last(ctx context.Context) (int64, error) {
	seq, _, err := one(ctx, t.Tx, scanInt, eventLast)
	if err != nil {
		return 0, fmt.Errorf("find last event: %w", err)
	}
	return seq, nil
}

func scanEvent(row Row) (event.Event, error) {
	var (
		e    event.Event
		at   int64
		data string
	)
	err := row.Scan(&e.Seq, (*string)(&e.Type), &e.Version, &e.Entity, &e.EntityID, &e.JobID, &e.RootID,
		&e.ProjectID, &e.Actor, &e.Owner, &at, &data)
	if err != nil {
		return event.Event{}, fmt.Errorf("scan event: %w", err)
	}
	e.At, e.Data = timeOf(at), rawJSON(data)
	return e, nil
}
