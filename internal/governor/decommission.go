package governor

import (
	"context"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/store"
)

// Step is one step of a decommission.
type Step struct {
	Name   string `json:"name"`
	Detail string `json:"detail"`
}

// Decommission is what was done to take a worker out of service.
type Decommission struct {
	WorkerID string         `json:"worker_id"`
	Steps    []Step         `json:"steps"`
	Children []Decommission `json:"children"`
	// Orphans are workers that lost their parent by it; there are none unless
	// somebody started one meanwhile.
	Orphans []string `json:"orphans"`
}

// Decommission takes a worker out of service with all its descendants, the
// youngest first, in the order of the law: notify, drain, children,
// permissions, resources, data, registry, verify.
func (g *Governor) Decommission(ctx context.Context, id, reason string) (Decommission, error) {
	var w manifest.Worker
	err := g.Store.View(ctx, func(tx store.Tx) (err error) {
		w, err = visible(ctx, tx, id)
		return err
	})
	if err != nil {
		return Decommission{}, err
	}
	if reason == "" {
		reason = "decommissioned"
	}
	return g.decommission(ctx, &w, reason, 0)
}

func (g *Governor) decommission(ctx context.Context, w *manifest.Worker, reason string, depth int) (d Decommission, err error) {
	d = Decommission{WorkerID: w.ID(), Steps: []Step{}, Children: []Decommission{}, Orphans: []string{}}
	step := func(name, detail string) { d.Steps = append(d.Steps, Step{name, detail}) }
	if w.State == manifest.Ended {
		step("verify", "it had ended before: "+w.Reason)
		return d, nil
	}
	if depth > manifest.MaxDepth {
		return d, fault.New(fault.Conflict, "the workers below %s go round in a circle", w.ID()).WithCode("cycle")
	}
	// From here on it is no parent any more, so that nobody can be added below.
	drained, _, err := g.ending(ctx, w.ID(), reason)
	if err != nil {
		return d, err
	}
	step("notify", "the event fleet.ending was sent")
	step("drain", "it takes no heartbeat and starts no child")
	children, err := g.below(ctx, w.ID())
	if err != nil {
		return d, err
	}
	for i := range children {
		c, err := g.decommission(ctx, &children[i], reason, depth+1)
		d.Children = append(d.Children, c)
		if err != nil {
			return d, err
		}
	}
	step("children", "those that were there are out of service")
	step("permissions", "its manifest is used, and its sandbox's keys end with the sandbox")
	last, err := g.end(ctx, w.ID(), reason, sandbox.OutcomeDone)
	if err != nil {
		return d, err
	}
	step("resources", "its sandbox has ended: "+orNone(drained.Sandbox))
	step("data", "the files in the sandbox are gone; its record and the output of its commands are kept as long as the settings say")
	step("registry", "it is "+string(last.State)+" and counts no more")
	return d, g.verify(ctx, w, &d, step)
}

// verify looks whether anything is left.
func (g *Governor) verify(ctx context.Context, w *manifest.Worker, d *Decommission, step func(name, detail string)) error {
	left, err := g.below(ctx, w.ID())
	for i := range left {
		d.Orphans = append(d.Orphans, left[i].ID())
	}
	if err == nil {
		step("verify", "nothing of it is left")
	}
	return err
}

// below lists the children of a worker that are there.
func (g *Governor) below(ctx context.Context, id string) (list []manifest.Worker, err error) {
	err = g.Store.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Fleet().List(ctx, store.FleetFilter{
			Parent: id, States: []manifest.State{manifest.Issued, manifest.Launching, manifest.Running, manifest.Ending}, Limit: manifest.MaxReplicas,
		})
		return err
	})
	return list, err
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// Below lists all workers below that were taken out of service with it.
func (d *Decommission) Below() []string {
	ids := []string{}
	for i := range d.Children {
		ids = append(append(ids, d.Children[i].WorkerID), d.Children[i].Below()...)
	}
	return ids
}
