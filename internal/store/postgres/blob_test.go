package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/blob/blobtest"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/store"
)

func TestBlobs(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T) blobtest.Place {
		address := fresh(t)
		return blobtest.Place{
			Open: func(t *testing.T) blob.Store { return open(t, address).Blobs() },
			Age: func(t *testing.T, digest string, ago time.Duration) {
				ctx := t.Context()
				conn, err := pgx.Connect(ctx, address)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close(ctx) }()
				if _, err := conn.Exec(ctx, `UPDATE blob SET wanted = $2 WHERE digest = $1`, digest, time.Now().Add(-ago).UnixMicro()); err != nil {
					t.Fatal(err)
				}
			},
			Part: 1 << 20,
		}
	})
}

func TestLiveOutputIsEverybodys(t *testing.T) {
	t.Parallel()
	ctx, address := t.Context(), fresh(t)
	db, far := open(t, address), open(t, address)
	here, there := db.Outputs(), far.Outputs()
	woken := there.Watch(ctx)
	j := &job.Job{ID: job.NewID(), State: job.InProgress, Fence: 3}
	if err := db.Update(ctx, func(tx store.Tx) error { return tx.Jobs().Add(ctx, j) }); err != nil {
		t.Fatal(err)
	}
	for _, piece := range []struct {
		at   int64
		text string
	}{{0, "hello"}, {0, "hello"}, {5, " wor"}, {3, "lo world"}, {100, "behind a gap"}} {
		if err := here.Take(ctx, j.ID, 3, 1, piece.at, []byte(piece.text)); err != nil {
			t.Fatal(err)
		}
	}
	<-woken
	for offset, want := range map[int64]string{0: "hello world", 4: "o world", 11: "", 50: ""} {
		got, err := there.Read(ctx, j.ID, 3, 1, offset, 100)
		if err != nil || string(got) != want {
			t.Errorf("from %d: got %q, want %q, %v", offset, got, want, err)
		}
	}
	if got, err := there.Read(ctx, j.ID, 3, 1, 0, 4); err != nil || string(got) != "hell" {
		t.Errorf("at most four: got %q, %v", got, err)
	}
	here.Drop(ctx, j.ID, 3) // it runs: nothing goes
	if got, _ := there.Read(ctx, j.ID, 3, 1, 0, 100); len(got) == 0 {
		t.Error("the output of a running job is gone")
	}
	j.State = job.Completed
	if err := db.Update(ctx, func(tx store.Tx) error { return tx.Jobs().Put(ctx, j) }); err != nil {
		t.Fatal(err)
	}
	there.Drop(ctx, j.ID, 3)
	if got, err := there.Read(ctx, j.ID, 3, 1, 0, 100); err != nil || len(got) != 0 {
		t.Errorf("the output of an ended job is there: %q, %v", got, err)
	}
}
