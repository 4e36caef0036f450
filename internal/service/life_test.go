package service_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aurea-dev/aurea/internal/service"
)

var errOver = errors.New("it is over")

func TestALifeWaitsForItsTasks(t *testing.T) {
	t.Parallel()
	type key struct{}
	given, giveUp := context.WithCancelCause(context.WithValue(context.Background(), key{}, "a value"))
	var l service.Life
	l.Begin(given)
	giveUp(errors.New("the start is done"))
	var seen error
	var value any
	if !l.Go(func(ctx context.Context) {
		value = ctx.Value(key{})
		<-ctx.Done()
		seen = context.Cause(ctx)
	}) {
		t.Fatal("no task was begun in a life")
	}
	work, done, ok := l.Detach(context.Background())
	if !ok {
		t.Fatal("no work was begun in a life")
	}
	var worked error
	go func() {
		<-work.Done()
		worked = context.Cause(work)
		done()
	}()
	if !l.End(errOver) {
		t.Error("there was no life to end")
	}
	if !errors.Is(seen, errOver) || !errors.Is(worked, errOver) || value != "a value" {
		t.Errorf("the task saw %v and %v, the work %v", seen, value, worked)
	}
}

func TestOutsideOfALifeNothingBegins(t *testing.T) {
	t.Parallel()
	var l service.Life
	for _, when := range []string{"before", "after"} {
		if l.Go(func(context.Context) {}) {
			t.Errorf("%s the life a task was begun", when)
		}
		if _, _, ok := l.Detach(context.Background()); ok {
			t.Errorf("%s the life work was begun", when)
		}
		if l.End(errOver) {
			t.Errorf("%s the life there was one to end", when)
		}
		l.Begin(context.Background())
		l.End(errOver)
	}
	l.Begin(context.Background())
	if !l.Go(func(ctx context.Context) { <-ctx.Done() }) || !l.End(errOver) {
		t.Error("there was no second life")
	}
}

// Work that is done before the end is not cancelled by it, nor waited for.
func TestDetachedWorkEnds(t *testing.T) {
	t.Parallel()
	var l service.Life
	l.Begin(context.Background())
	gone, hangUp := context.WithCancelCause(context.Background())
	work, done, _ := l.Detach(gone)
	hangUp(errors.New("the caller has gone"))
	if err := work.Err(); err != nil {
		t.Errorf("the work ended with its caller: %v", err)
	}
	done()
	l.End(errOver)
	if err := context.Cause(work); errors.Is(err, errOver) {
		t.Error("work that was done ended with the life")
	}
}

func TestTasksBeginWhileALifeEnds(t *testing.T) {
	t.Parallel()
	for range 200 {
		var l service.Life
		l.Begin(context.Background())
		var others sync.WaitGroup
		for range 4 {
			others.Go(func() {
				for l.Go(func(context.Context) {}) { // until it ends
				}
			})
		}
		l.End(errOver)
		others.Wait()
	}
}

func TestEvery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancelCause(t.Context())
		begin := time.Now()
		var at []time.Duration
		service.Every(ctx, time.Second, func() {
			if at = append(at, time.Since(begin)); len(at) == 3 {
				stop(errOver)
			}
		})
		if len(at) != 3 || at[0] != time.Second || at[2] != 3*time.Second {
			t.Errorf("it was done after %v", at)
		}
	})
}
