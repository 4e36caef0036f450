package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

func testViewSeesUpdates(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	for range 200 {
		e := newEvent("e")
		update(t, s, func(tx store.Tx) error { return tx.Events().Append(ctx, e) })
		last := view(t, s, func(tx store.Tx) (int64, error) { return tx.Events().Last(ctx) })
		equal(t, "last event after the update returned", last, e.Seq)
	}
}

func testViewIsConsistent(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	update(t, s, func(tx store.Tx) error { return tx.Events().Append(ctx, newEvent("e")) })
	check(t, s.View(ctx, func(tx store.Tx) error {
		before, err := tx.Events().Last(ctx)
		if err != nil {
			return err
		}
		j := newJob()
		update(t, s, func(tx store.Tx) error { return write(ctx, tx, j) })
		after, err := tx.Events().Last(ctx)
		if err != nil {
			return err
		}
		equal(t, "last event within one view", after, before)
		_, err = tx.Jobs().Get(ctx, j.ID)
		wantKind(t, "job of a later update", err, fault.NotFound)
		return nil
	}))
}

func testViewIsReadOnly(t *testing.T, db Database) {
	s := open(t, db)
	old := newJob()
	key, _ := policy.NewKey(policy.Admin, "k", moment(0))
	update(t, s, func(tx store.Tx) error {
		return errors.Join(tx.Jobs().Add(t.Context(), old), tx.Keys().Add(t.Context(), key),
			tx.Replies().Put(t.Context(), "o", "k", store.Reply{At: moment(0)}))
	})
	writes := map[string]func(context.Context, store.Tx) error{
		"Jobs.Add":      func(ctx context.Context, tx store.Tx) error { return tx.Jobs().Add(ctx, newJob()) },
		"Jobs.Put":      func(ctx context.Context, tx store.Tx) error { j := *old; j.Fence = 7; return tx.Jobs().Put(ctx, &j) },
		"Events.Append": func(ctx context.Context, tx store.Tx) error { return tx.Events().Append(ctx, newEvent("e")) },
		"Workers.Put":   func(ctx context.Context, tx store.Tx) error { return tx.Workers().Put(ctx, job.Worker{ID: "w"}) },
		"Records.Add": func(ctx context.Context, tx store.Tx) error {
			return tx.Records().Add(ctx, evidence.Record{JobID: "j", Attempt: 1}, nil, nil)
		},
		"Keys.Add": func(ctx context.Context, tx store.Tx) error {
			k, _ := policy.NewKey(policy.Admin, "k", moment(0))
			return tx.Keys().Add(ctx, k)
		},
		"Keys.Used": func(ctx context.Context, tx store.Tx) error { return tx.Keys().Used(ctx, key.ID, moment(1)) },
		"Organisation.SetPause": func(ctx context.Context, tx store.Tx) error {
			return tx.Organisation().SetPause(ctx, policy.Pause{Paused: true})
		},
		"Keys.Revoke": func(ctx context.Context, tx store.Tx) error { return tx.Keys().Revoke(ctx, key.ID, moment(1)) },
		"Leaders.Acquire": func(ctx context.Context, tx store.Tx) error {
			_, _, err := tx.Leaders().Acquire(ctx, "a", moment(0), time.Minute, true)
			return err
		},
		"Audit.Append": func(ctx context.Context, tx store.Tx) error { return appendAudit(ctx, tx, "t") },
		"Replies.Put":  func(ctx context.Context, tx store.Tx) error { return tx.Replies().Put(ctx, "o", "new", store.Reply{}) },
		"Replies.Forget": func(ctx context.Context, tx store.Tx) error {
			_, err := tx.Replies().Forget(ctx, moment(9))
			return err
		},
	}
	for name, write := range writes {
		err := s.View(t.Context(), func(tx store.Tx) error { return write(t.Context(), tx) })
		if err == nil {
			t.Errorf("%s within a view is no error", name)
		}
		update(t, s, func(tx store.Tx) error { return tx.Events().Append(t.Context(), newEvent("after")) })
	}
	equal(t, "job after the views", view(t, s, func(tx store.Tx) (job.Job, error) { return tx.Jobs().Get(t.Context(), old.ID) }), *old)
	equal(t, "workers after the views", len(view(t, s, func(tx store.Tx) ([]job.Worker, error) { return tx.Workers().List(t.Context()) })), 0)
}

// testViewEnds does each thing often, so that a reader that is not given back
// would be missed.
func testViewEnds(t *testing.T, db Database) {
	ctx, s := t.Context(), open(t, db)
	failure := errors.New("failure")
	for range 50 {
		err := s.View(ctx, func(store.Tx) error { return failure })
		if err != failure { //nolint:errorlint // as it is, not wrapped
			t.Fatalf("got error %v, want the function's own", err)
		}
		value := caught(func() { _ = s.View(ctx, func(store.Tx) error { panic("boom") }) })
		equal(t, "value of the panic", value, any("boom"))
	}
	view(t, s, func(tx store.Tx) (int64, error) { return tx.Events().Last(ctx) })
}
