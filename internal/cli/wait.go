package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/client"
)

// wait follows a plan to its end and shows how it goes: a live line per job on
// a terminal, a line per change elsewhere, an event per line as JSON.
func (inv *invocation) wait(ctx context.Context, c *client.Client, s client.Submission) error {
	board := inv.newBoard(s)
	for e, err := range c.Follow(ctx, client.EventFilter{RootJobID: s.RootJobID}, 0) {
		if err != nil {
			return err
		}
		if err := board.show(e); err != nil {
			return err
		}
		if e.JobID == s.RootJobID && ends(e.Type) {
			break
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	root, err := c.Job(ctx, s.RootJobID)
	if err != nil {
		return err
	}
	if inv.json {
		err = inv.printJSON(root)
	} else {
		_, err = fmt.Fprintf(inv.Out, "%s\n", plain(string(root.Status)))
	}
	if err == nil && root.Status != client.Completed {
		err = &notCompleteError{root}
	}
	return err
}

// ends reports whether an event of this type ends a job.
func ends(kind string) bool {
	return kind == "job.completed" || kind == "job.failed" || kind == "job.escalated"
}

// board shows the jobs of a plan.
type board interface {
	show(e client.Event) error
}

func (inv *invocation) newBoard(s client.Submission) board {
	if inv.json {
		return jsonBoard{inv}
	}
	if width, height, ok := terminal(inv.Out); ok {
		return &liveBoard{out: inv.Out, root: s.RootJobID, ids: s.JobIDs, width: width, rows: max(1, height-2), jobs: map[string]jobLine{}, now: time.Now}
	}
	return lineBoard{inv}
}

type jsonBoard struct{ inv *invocation }

func (b jsonBoard) show(e client.Event) error { return b.inv.printJSON(e) }

type lineBoard struct{ inv *invocation }

func (b lineBoard) show(e client.Event) error {
	_, err := fmt.Fprintln(b.inv.Out, eventLine(e))
	return err
}

// change is what the details of an event say about a move.
type change struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason"`
}

func changeOf(e client.Event) change {
	var c change
	_ = json.Unmarshal(e.Details, &c) // an event without a move has none
	return c
}

// eventLine writes an event on one line.
func eventLine(e client.Event) string {
	c := changeOf(e)
	words := []string{e.At.UTC().Format(time.RFC3339Nano), fmt.Sprintf("%d", e.Seq), e.Type}
	if e.EntityID != "" {
		words = append(words, e.EntityID)
	}
	if c.To != "" {
		words = append(words, c.From+"→"+c.To)
	}
	if c.Reason != "" {
		words = append(words, "("+c.Reason+")")
	}
	return plain(strings.Join(words, " "))
}

// liveBoard redraws one line per job in place. The plan's own job is the last
// line; of a long plan only the first jobs are shown.
type liveBoard struct {
	out         io.Writer
	root        string
	ids         []string
	width, rows int
	jobs        map[string]jobLine
	drawn       int
	now         func() time.Time
}

type jobLine struct {
	state, last string
	since       time.Time
}

func (b *liveBoard) show(e client.Event) error {
	if e.JobID == "" {
		return nil
	}
	line := b.jobs[e.JobID]
	line.last = strings.TrimPrefix(e.Type, "job.")
	if to := changeOf(e).To; to != "" {
		line.state, line.since = to, e.At
	}
	b.jobs[e.JobID] = line
	return b.draw()
}

func (b *liveBoard) draw() error {
	var out strings.Builder
	if b.drawn > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", b.drawn)
	}
	shown := b.ids
	if len(shown) > b.rows-1 {
		shown = shown[:max(0, b.rows-2)]
	}
	for _, id := range shown {
		b.line(&out, "job ", id)
	}
	b.drawn = len(shown) + 1
	if hidden := len(b.ids) - len(shown); hidden > 0 {
		fmt.Fprintf(&out, "\x1b[2K… and %d more\n", hidden)
		b.drawn++
	}
	b.line(&out, "plan", b.root)
	_, err := io.WriteString(b.out, out.String())
	return err
}

func (b *liveBoard) line(out *strings.Builder, what, id string) {
	l := b.jobs[id]
	text := fmt.Sprintf("%s %s  %-11s %s", what, id, l.state, l.last)
	fmt.Fprintf(out, "\x1b[2K%s\n", clip(plain(text), b.width-1))
}
