package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/build"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// BuildImage has a worker build an image: the one that is named, or else the
// first by name whose command stream is open here. Images are a machine's own,
// so the others do not have it then.
func (m *Manager) BuildImage(ctx context.Context, worker string, order build.Order, upload io.Reader, tell func(build.Step) error) (build.Result, error) {
	who, err := policy.Asking(ctx)
	if err != nil {
		return build.Result{}, err
	}
	if err := order.Check(); err != nil {
		return build.Result{}, err
	}
	if err := m.DemandIntake(); err != nil {
		return build.Result{}, err
	}
	if err := m.switches.refuse(sandbox.Subject{}); err != nil {
		return build.Result{}, err
	}
	name, b := m.sessions.builder(worker)
	if b == nil && worker != "" {
		return build.Result{}, fault.New(fault.Unavailable, "The worker %q is not connected to this manager, so it cannot build.", worker).WithCode("no_worker")
	}
	if b == nil {
		return build.Result{}, fault.New(fault.Unavailable, "No worker is connected to this manager, so there is nobody to build. Start one.").WithCode("no_worker")
	}
	log := m.Logger.With("who", who.ID, "worker", name, "dockerfile", order.Name, "tag", order.Tag, "uploaded", order.Uploaded)
	log.Info("an image is being built")
	act := store.Act{Source: "manager", Action: "image.build", Target: order.Tag, Before: map[string]any{"worker": name, "dockerfile": order.Name, "uploaded": order.Uploaded}}
	if err := m.acted(ctx, act); err != nil {
		return build.Result{}, err
	}
	r, err := b.Build(ctx, order, upload, tell)
	act.Action, act.After = "image.built", map[string]any{"image": r.Image, "digest": r.Digest}
	if err != nil {
		act.Outcome, act.After = audit.Failed, nil
	}
	told := m.acted(context.WithoutCancel(ctx), act) // it was built, whoever hung up
	if err = errors.Join(err, told); err != nil {
		return build.Result{}, err
	}
	log.Info("an image was built", "image", r.Image, "digest", r.Digest)
	return r, nil
}

// acted records an act that no transaction of ours does.
func (m *Manager) acted(ctx context.Context, a store.Act) error {
	if err := m.Store.Update(ctx, func(tx store.Tx) error { return store.Acted(ctx, tx, a) }); err != nil {
		return fmt.Errorf("record an act: %w", err)
	}
	return nil
}

// builder returns a worker that can build; "" is the first.
func (ss *sessions) builder(worker string) (string, dispatch.Builder) {
	ss.mu.Lock()
	names := make([]string, 0, len(ss.byWorker))
	for name := range ss.byWorker {
		if worker == "" || name == worker {
			names = append(names, name)
		}
	}
	ss.mu.Unlock()
	slices.Sort(names)
	for _, name := range names {
		if b, ok := ss.receiver(name).(dispatch.Builder); ok {
			return name, b
		}
	}
	return "", nil
}
