package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
)

func listEvents(t failing, s store.Store, f event.Filter, limit int) []event.Event {
	t.Helper()
	return view(t, s, func(tx store.Tx) ([]event.Event, error) { return tx.Events().List(t.Context(), f, limit) })
}

func testEventRoundTrip(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	full, zero := fullEvent(), event.Event{}
	update(t, s, func(tx store.Tx) error { return tx.Events().Append(ctx, &full, &zero) })
	equal(t, "events", listEvents(t, s, event.Filter{}, 10), []event.Event{full, zero})
}

func testEventOrder(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	last := func() int64 {
		return view(t, s, func(tx store.Tx) (int64, error) { return tx.Events().Last(ctx) })
	}
	equal(t, "last of none", last(), int64(0))
	var want []event.Event
	for i := range 5 {
		a, b := newEvent(fmt.Sprint("a", i)), newEvent(fmt.Sprint("b", i))
		update(t, s, func(tx store.Tx) error { return tx.Events().Append(ctx, a, b) })
		want = append(want, *a, *b)
	}
	for i := range want[1:] {
		if want[i+1].Seq <= want[i].Seq {
			t.Fatalf("number %d follows %d", want[i+1].Seq, want[i].Seq)
		}
	}
	equal(t, "last", last(), want[9].Seq)
	equal(t, "all", listEvents(t, s, event.Filter{}, 100), want)
	equal(t, "first three", listEvents(t, s, event.Filter{}, 3), want[:3])
	equal(t, "after the third", listEvents(t, s, event.Filter{After: want[2].Seq}, 4), want[3:7])
	equal(t, "after the last", len(listEvents(t, s, event.Filter{After: want[9].Seq}, 4)), 0)
	equal(t, "at most none", len(listEvents(t, s, event.Filter{}, 0)), 0)
}

// testPageBytes lists elements that fill two pages and a bit, and one that is
// more than a page by itself. A store works on after a page that ended early.
func testPageBytes(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	text := func(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`) }
	const third = store.PageBytes/3 + 1
	for _, size := range []int{third, third, third, third, third, third, third, 2 * store.PageBytes, 10} {
		e, j := newEvent("e"), newJob()
		e.Data, j.Payload = text(size), text(size)
		update(t, s, func(tx store.Tx) error {
			return errors.Join(tx.Events().Append(ctx, e), tx.Jobs().Add(ctx, j))
		})
	}
	lengths := func(next func() int) (list []int) {
		for n := next(); n > 0; n = next() {
			list = append(list, n)
		}
		return list
	}
	var after, before int64
	equal(t, "pages of events", lengths(func() int {
		page := listEvents(t, s, event.Filter{After: after}, 100)
		if n := len(page); n > 0 {
			after = page[n-1].Seq
			equal(t, "a page is full", store.Full(page, store.EventBytes), after < 9)
		}
		return len(page)
	}), []int{3, 3, 2, 1})
	equal(t, "pages of jobs", lengths(func() int {
		page := view(t, s, func(tx store.Tx) ([]job.Job, error) {
			return tx.Jobs().List(ctx, store.JobFilter{Before: before, Limit: 100})
		})
		if n := len(page); n > 0 {
			before = page[n-1].Seq
		}
		return len(page)
	}), []int{2, 3, 3, 1})
}

// testHostileText stores what no store needs to give back as it was, and must
// take: it comes from sandboxes.
func testHostileText(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	for _, text := range []string{"a zero \x00 byte", "no \xff\xfe UTF-8", "half of \xe6\x97", "\xed\xa0\x80"} {
		e, j := newEvent("e"), newJob()
		e.Actor, e.Data, j.Title = text, json.RawMessage(`{"text":"`+strings.ReplaceAll(text, "\x00", "")+`"}`), text
		update(t, s, func(tx store.Tx) error {
			return errors.Join(tx.Events().Append(ctx, e), tx.Jobs().Add(ctx, j))
		})
		list := listEvents(t, s, event.Filter{After: e.Seq - 1}, 1)
		if len(list) != 1 || !json.Valid(list[0].Data) {
			t.Errorf("%q: got events %v", text, list)
		}
		equal(t, "the job beside it", getJob(t, s, j.ID).ID, j.ID)
	}
}

// testEventFilter holds List against Matches.
func testEventFilter(t *testing.T, fresh func() Database) {
	types := []event.Type{event.JobCreated, event.JobFailed, event.WorkerLost}
	id := func(r *rapid.T, what string) string {
		return rapid.SampledFrom([]string{"", "a", "b", "A"}).Draw(r, what)
	}
	some := func(r *rapid.T, what string) []string {
		return rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "none"}), 0, 3).Draw(r, what)
	}
	rapid.Check(t, func(r *rapid.T) {
		s := fresh()()
		defer func() { check(r, s.Close()) }()
		var stored []event.Event
		update(r, s, func(tx store.Tx) error {
			stored = nil
			for range rapid.IntRange(0, 30).Draw(r, "events") {
				e := event.Event{
					Type: rapid.SampledFrom(types).Draw(r, "type"), Version: 1, Entity: id(r, "entity"), EntityID: id(r, "entity id"),
					JobID: id(r, "job"), RootID: id(r, "root"), ProjectID: rapid.Int64Range(0, 2).Draw(r, "project"),
					Owner: id(r, "owner"), At: moment(1),
				}
				if err := tx.Events().Append(r.Context(), &e); err != nil {
					return err
				}
				stored = append(stored, e)
			}
			return nil
		})
		for range 10 {
			f := event.Filter{
				After: rapid.Int64Range(-1, 31).Draw(r, "after"), Types: rapid.SliceOfN(rapid.SampledFrom(types), 0, 2).Draw(r, "types"),
				JobID: id(r, "job"), RootID: id(r, "root"), ProjectID: rapid.Int64Range(0, 2).Draw(r, "project"),
				EntityIDs: some(r, "entity ids"), Entities: some(r, "entities"), Owner: id(r, "owner"),
			}
			limit := rapid.IntRange(1, 40).Draw(r, "limit")
			var want []event.Event
			for _, e := range stored {
				if f.Matches(e) && len(want) < limit {
					want = append(want, e)
				}
			}
			equal(r, fmt.Sprintf("%+v", f), listEvents(r, s, f, limit), want)
		}
	})
}

// testEventCommitOrder has writers, of which some fail, and a reader that
// never may see a number appear below one that it has seen.
func testEventCommitOrder(t *testing.T, db Database) {
	const writers, rounds = 8, 40
	ctx, s := t.Context(), open(t, db)
	failure := errors.New("failure")
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range rounds {
				err := s.Update(ctx, func(tx store.Tx) error {
					list := []*event.Event{newEvent(fmt.Sprint(w)), newEvent(fmt.Sprint(w))}
					if err := tx.Events().Append(ctx, list...); err != nil {
						return err
					}
					if i%4 == 3 {
						return failure
					}
					return nil
				})
				if err != nil && !errors.Is(err, failure) {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	var seen []event.Event
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true // read once more
		default:
		}
		now := listEvents(t, s, event.Filter{}, 10000)
		if len(now) < len(seen) {
			t.Fatalf("%d events were there, now %d", len(seen), len(now))
		}
		equal(t, "what was seen before", now[:len(seen)], seen, cmpopts.EquateEmpty())
		seen = now
	}
	equal(t, "events in the end", len(seen), writers*rounds/4*3*2)
}
