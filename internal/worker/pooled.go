package worker

import (
	"context"
	"maps"
	"slices"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/language"
	"github.com/aurea-dev/aurea/internal/pool"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// maxPool bounds how many sandboxes of one language wait.
const maxPool = 64

// poolClasses are what the pool keeps.
func (c Config) poolClasses() ([]pool.Class, error) {
	var classes []pool.Class
	for _, name := range slices.Sorted(maps.Keys(c.Pool)) {
		lang, err := c.Languages.Find(name)
		if err != nil {
			return nil, fault.Field("--pool/AUREA_POOL", "%w", err).WithCode("bad_setting")
		}
		n := c.Pool[name]
		if n < 0 || n > maxPool {
			return nil, fault.Field("--pool/AUREA_POOL", "%d sandboxes of %s are not from 0 to %d", n, name, maxPool).WithCode("bad_setting")
		}
		if slices.ContainsFunc(classes, func(k pool.Class) bool { return k.Language.Name == lang.Name }) {
			return nil, fault.Field("--pool/AUREA_POOL", "%s is named twice", lang.Name).WithCode("bad_setting")
		}
		if n > 0 {
			classes = append(classes, pool.Class{Language: lang, Min: n, Max: max(n, min(c.PoolMax, maxPool))})
		}
	}
	return classes, nil
}

// newPool prepares the pool; without classes it keeps nothing.
func (r *run) newPool() (*pool.Pool, error) {
	classes, err := r.poolClasses()
	if err != nil {
		return nil, err
	}
	return pool.New(pool.Config{
		Driver: r.driver, Classes: classes, Brake: r.brake, Limits: r.Limits, OutputCap: r.OutputCap,
		Env: map[string]string{artifactsVariable: artifactsPath}, Folder: artifactsPath,
		Image: func(l language.Language) (string, bool) {
			image := r.imageFor(l)
			stop, _ := r.brake.Over()
			return image, !stop.Kill && !stop.Freeze && r.inactive(l, image) == ""
		},
		Digest: r.Digest, Reserve: r.room.reserve, Release: r.room.release,
		Busy:   func() bool { return r.runs.running() > 0 || r.tasks.len() > 0 },
		Labels: map[string]string{"worker": r.WorkerID},
		Logger: r.log,
	})
}

// keepPool keeps the pool until the run ends.
func (r *run) keepPool() { r.pool.Run(r.life) }

// claim takes a waiting sandbox for the run, where there is one like it.
func (s *shot) claim(ctx context.Context) *pool.Held {
	defer s.makeWay(ctx)
	if s.order.Network != "" && s.order.Network != sandbox.NetworkNone {
		return nil
	}
	h := s.pool.Claim(ctx, pool.Want{Language: s.lang.Name, Image: s.image, Limits: s.limits, Env: s.order.Env})
	if h != nil {
		h.Release() // the run has taken room for it
	}
	return h
}

// makeWay has the pool give up what real work needs.
func (r *run) makeWay(ctx context.Context) {
	if n := r.room.lacks(); n > 0 {
		r.pool.Yield(ctx, n)
	}
}

// Pool says what the pool holds.
func (rc receiver) Pool(context.Context) (dispatch.PoolState, error) {
	r := rc.run
	var state dispatch.PoolState
	for _, k := range r.pool.State() {
		state.Classes = append(state.Classes, dispatch.PoolClass{
			Driver: r.Driver, Image: k.Image, Language: k.Language, Limits: k.Limits, Wanted: k.Wanted, Waiting: k.Waiting,
			Making: k.Making, Hits: k.Hits, Misses: k.Misses, Discards: k.Discards, Oldest: k.Oldest,
		})
	}
	return state, nil
}
