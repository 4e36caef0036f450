package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

// polyglot keeps what a worker said last of its languages.
type polyglot struct {
	dispatch.Manager

	mu  sync.Mutex
	all []language.Status
}

func (a *polyglot) Register(ctx context.Context, r dispatch.Registration) (dispatch.Welcome, error) {
	a.set(r.Languages)
	return a.Manager.Register(ctx, r)
}

func (a *polyglot) Extend(ctx context.Context, r dispatch.ExtendRequest) (dispatch.ExtendAnswer, error) {
	a.set(r.Languages)
	return a.Manager.Extend(ctx, r)
}

func (a *polyglot) set(all []language.Status) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = all
}

// inactive is what is not active, and why.
func (a *polyglot) inactive() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]string{}
	for _, l := range a.all {
		if !l.Active {
			out[l.Name] = l.Reason
		}
	}
	return out
}

// A worker says which languages its image has, why it lacks the others, and
// says it anew when the image becomes another.
func TestLanguagesAreToldAsTheImageHasThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		image, surveys, broken := "first:1", 0, true
		a := &polyglot{}
		s := setUp(t, func(c *worker.Config) {
			a.Manager = c.Manager
			c.Manager = a
			c.DefaultImage = func() string { mu.Lock(); defer mu.Unlock(); return image }
			c.Survey = func(_ context.Context, _ sandbox.Driver, name string, _ sandbox.Limits, programs []string) (worker.Found, error) {
				mu.Lock()
				defer mu.Unlock()
				surveys++
				if name == "second:1" && broken {
					return worker.Found{}, errors.New("there is no room")
				}
				found := worker.Found{Programs: map[string]bool{}}
				for _, p := range programs {
					found.Programs[p] = name == "second:1" || !slices.Contains([]string{"ruby", "cc"}, p)
				}
				return found, nil
			}
		})
		synctest.Wait()
		if d := cmp.Diff(map[string]string{
			"c": "the image first:1 has no cc", "ruby": "the image first:1 has no ruby",
		}, a.inactive()); d != "" {
			t.Error(d)
		}
		pass(time.Hour)
		if mu.Lock(); surveys != 1 {
			t.Errorf("the same image was looked into %d times", surveys)
		}
		image = "second:1"
		mu.Unlock()
		pass(time.Minute)
		if why := a.inactive()["python"]; why != "the image second:1 could not be looked into: there is no room" {
			t.Errorf("python: %s", why)
		}
		mu.Lock()
		broken = false
		mu.Unlock()
		pass(time.Minute)
		if d := cmp.Diff(map[string]string{}, a.inactive()); d != "" {
			t.Error(d)
		}
		s.end()
	})
}
