package governor_test

import (
	"context"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/manifest"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/sqlite/sqlitetest"
)

// TestNoStoryBreaksTheLaw plays random stories on each kind of database, and
// after each step looks whether every bound of the contract holds, whether there
// is a sandbox for each worker and none beside, and at the end whether the audit
// verifies.
func TestNoStoryBreaksTheLaw(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		mould := sqlitetest.NewMould(t)
		rapid.Check(t, func(rt *rapid.T) {
			db, dir := mould.Open(rt)
			tell(rt, db, dir)
		})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		needPostgres(t)
		folder := sqlitetest.Folder(t)
		// A database takes longer to make than a story to tell.
		const most = 8
		told, failed := 0, false
		rapid.Check(t, func(rt *rapid.T) {
			if told++; told > most && !failed {
				return
			}
			defer func() { failed = failed || rt.Failed() }()
			dir, err := os.MkdirTemp(folder, "story")
			if err != nil {
				rt.Fatalf("make a folder: %v", err)
			}
			tell(rt, openPostgres(rt), dir)
		})
	})
}

// tell plays one story over an empty database.
func tell(rt *rapid.T, db store.Store, dir string) {
	w := &world{T: rt, s: stageAt(rt, db, place{dir}), held: map[string]int{}}
	defer w.s.close()
	w.begin()
	rt.Repeat(map[string]func(*rapid.T){
		"": w.check, "issue": w.issue, "register": w.register, "replicate": w.replicate, "heartbeat": w.heartbeat, "time": w.time,
		"kill": w.kill, "reap": w.reap, "sweep": w.sweep, "restart": w.restart, "crash": w.crash, "switch": w.engage,
		"quarantine": w.quarantine, "release": w.release, "decommission": w.decommission,
	})
	w.verify()
}

// world is a story.
type world struct {
	*rapid.T
	s        *stage
	law      manifest.Contract
	papers   []manifest.Manifest
	ids      []string // of all that ever had a paper
	stopped  bool
	admitted int            // when the switch was engaged
	held     map[string]int // how many children those under quarantine had when it began
}

func (w *world) begin() {
	w.s.contract(func(c *manifest.Contract) {
		c.MaxDepth, c.MaxReplicas = rapid.IntRange(0, 3).Draw(w.T, "max_depth"), rapid.IntRange(1, 4).Draw(w.T, "max_replicas")
		c.Cooldown = time.Duration(rapid.IntRange(0, 20).Draw(w.T, "cooldown")) * time.Second
		c.Expiration = time.Duration(rapid.SampledFrom([]int{0, 30, 300}).Draw(w.T, "expiration")) * time.Second
		if rapid.Bool().Draw(w.T, "stop") {
			c.Stop = []manifest.StopCondition{{Name: manifest.QuotaPressure, Threshold: 0.9}}
		}
		w.law = *c
	})
}

// someone draws an id: of one that is there, was there, or never was.
func (w *world) someone(t *rapid.T) string {
	return rapid.SampledFrom(append([]string{"ffffffff"}, w.ids...)).Draw(t, "who")
}

func (w *world) allowed(t *rapid.T, err error) {
	if err != nil && !fault.Is(err, fault.Denied) {
		t.Fatalf("not a decision: %v", err)
	}
}

func (w *world) issue(t *rapid.T) {
	a := governor.Asked{Depth: rapid.IntRange(0, 2).Draw(t, "depth")}
	if rapid.Bool().Draw(t, "child") {
		a.ParentID = w.someone(t)
	}
	m, err := w.s.Issue(me(), a)
	w.allowed(t, err)
	if err == nil {
		w.papers, w.ids = append(w.papers, m), append(w.ids, m.WorkerID)
	}
}

func (w *world) register(t *rapid.T) {
	if len(w.papers) == 0 {
		t.Skip("no paper")
	}
	m := rapid.SampledFrom(w.papers).Draw(t, "paper")
	if rapid.IntRange(0, 4).Draw(t, "forged") == 0 {
		m.Depth++
		if _, err := w.s.Register(me(), m); fault.CodeOf(err) != governor.RejectSignature {
			t.Fatalf("a forged paper: %v", err)
		}
		return
	}
	_, err := w.s.Register(me(), m)
	w.allowed(t, err)
}

func (w *world) replicate(t *rapid.T) {
	c, err := w.s.Replicate(me(), w.someone(t), "", nil)
	w.allowed(t, err)
	if err == nil {
		w.ids = append(w.ids, c.ID())
	}
}

func (w *world) heartbeat(t *rapid.T) {
	_, err := w.s.Heartbeat(me(), w.someone(t))
	w.allowed(t, err)
}

func (w *world) time(t *rapid.T) {
	w.s.pass(time.Duration(rapid.SampledFrom([]int{1, 5, 20, 61, 1000}).Draw(t, "seconds")) * time.Second)
}

func (w *world) kill(t *rapid.T) {
	if _, _, err := w.s.Kill(me(), w.someone(t), "a story"); err != nil {
		t.Fatalf("kill: %v", err)
	}
}

func (w *world) reap(t *rapid.T) {
	if _, err := w.s.Reap(me(), 0); err != nil {
		t.Fatalf("reap: %v", err)
	}
	for _, x := range w.all(t, manifest.Running) {
		if w.s.clock().Sub(x.HeartbeatAt) > time.Minute && !x.Quarantined() {
			t.Fatalf("%s was silent for %s and is there", x.ID(), w.s.clock().Sub(x.HeartbeatAt))
		}
	}
}

func (w *world) sweep(t *rapid.T) {
	w.s.Sweep(context.Background(), w.s.clock())
	for _, x := range w.all(t, manifest.Launching, manifest.Running, manifest.Ending) {
		if x.State != manifest.Running || !x.ExpiresAt.IsZero() && !x.ExpiresAt.After(w.s.clock()) {
			t.Fatalf("%s is %s until %s, and it is %s", x.ID(), x.State, x.ExpiresAt, w.s.clock())
		}
	}
}

// quarantine holds a worker, if it can be held; from then on it has no children.
func (w *world) quarantine(t *rapid.T) {
	id := w.someone(t)
	switch x, err := w.s.Quarantine(me(), id, governor.Suspicion{Severity: manifest.Low}); {
	case err == nil && (!x.Quarantined() || !x.Quarantine.Restrictions.TaskExecutionPaused):
		t.Fatalf("%s is held as %+v", id, x.Quarantine)
	case err == nil:
		w.held[id] = w.births(t)[id]
	case !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict):
		t.Fatalf("quarantine: %v", err)
	}
}

func (w *world) release(t *rapid.T) {
	id := w.someone(t)
	_, err := w.s.Release(me(), id, "a story")
	if err == nil {
		delete(w.held, id)
	} else if !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict) {
		t.Fatalf("release: %v", err)
	}
}

func (w *world) decommission(t *rapid.T) {
	id := w.someone(t)
	if _, err := w.s.Decommission(me(), id, "a story"); err != nil && !fault.Is(err, fault.NotFound) {
		t.Fatalf("decommission: %v", err)
	}
	for _, x := range w.all(t, manifest.Launching, manifest.Running, manifest.Ending) {
		if x.ID() == id || x.Manifest.ParentID == id {
			t.Fatalf("%s below %q is %s after %s was taken out of service", x.ID(), x.Manifest.ParentID, x.State, id)
		}
	}
}

// births is how many children each worker ever had.
func (w *world) births(t testingT) map[string]int {
	n := map[string]int{}
	for _, x := range w.all(t) {
		if !x.RegisteredAt.IsZero() {
			n[x.Manifest.ParentID]++
		}
	}
	return n
}

func (w *world) restart(*rapid.T) { w.s.restart() }

// crash cuts a worker's launch, or its end, at a point where nothing of it but
// the sandbox is there, and goes on as the next manager does.
func (w *world) crash(t *rapid.T) {
	running := w.all(t, manifest.Running)
	if len(running) == 0 {
		t.Skip("nobody runs")
	}
	x := rapid.SampledFrom(running).Draw(t, "who")
	if rapid.Bool().Draw(t, "launching") {
		x.State, x.Sandbox, x.StartedAt = manifest.Launching, "", time.Time{}
	} else {
		x.State, x.Reason = manifest.Ending, "a story"
	}
	err := w.s.db.Update(context.Background(), func(tx store.Tx) error { return tx.Fleet().Put(context.Background(), &x) })
	if err != nil {
		t.Fatalf("cut: %v", err)
	}
	w.s.restart()
	w.s.pass(time.Second)
	w.s.Sweep(context.Background(), w.s.clock())
}

func (w *world) engage(*rapid.T) {
	if w.stopped = !w.stopped; w.stopped {
		w.s.engage("a story")
		w.admitted = w.count()
		return
	}
	w.s.engage("")
}

func (w *world) all(t testingT, states ...manifest.State) []manifest.Worker {
	list, err := w.s.Workers(me(), store.FleetFilter{States: states, Limit: 10_000})
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	return list
}

// count is how many were ever registered.
func (w *world) count() (n int) {
	for _, x := range w.all(w.T) {
		if !x.RegisteredAt.IsZero() {
			n++
		}
	}
	return n
}

// check looks at everything.
func (w *world) check(t *rapid.T) {
	there := map[string]manifest.Worker{}
	active, births := 0, map[string][]time.Time{}
	for _, x := range w.all(t) {
		there[x.ID()] = x
		if x.State.Registered() {
			active++
		}
	}
	if active > w.law.MaxReplicas || active != w.s.alive() {
		t.Fatalf("%d workers and %d sandboxes are there, %d are allowed", active, w.s.alive(), w.law.MaxReplicas)
	}
	for id, x := range there {
		m := &x.Manifest
		if parent, ok := there[m.ParentID]; m.Root() && m.Depth != 0 || !m.Root() && (!ok || m.Depth != parent.Manifest.Depth+1) {
			t.Fatalf("%s below %q is %d deep", id, m.ParentID, m.Depth)
		}
		if !x.RegisteredAt.IsZero() && m.Depth > w.law.MaxDepth {
			t.Fatalf("%s is %d deep, %d are allowed", id, m.Depth, w.law.MaxDepth)
		}
		if !x.RegisteredAt.IsZero() && !m.Root() {
			births[m.ParentID] = append(births[m.ParentID], x.RegisteredAt)
		}
	}
	for parent, times := range births {
		for i := range times {
			for j := range i {
				if times[i].Sub(times[j]).Abs() < w.law.Cooldown {
					t.Fatalf("%s had children at %s and %s", parent, times[j], times[i])
				}
			}
		}
	}
	if w.stopped && w.count() != w.admitted {
		t.Fatalf("%d were registered under the switch", w.count()-w.admitted)
	}
	now := w.births(t)
	for id, before := range w.held {
		if now[id] != before {
			t.Fatalf("%s had %d children under quarantine", id, now[id]-before)
		}
	}
}

// verify holds the audit against its own tree.
func (w *world) verify() {
	w.Helper()
	ctx := context.Background()
	err := w.s.db.View(ctx, func(tx store.Tx) error {
		tree, err := tx.Audit().Tree(ctx)
		if err != nil {
			return err
		}
		const all = 100_000
		leaves, err := tx.Audit().Leaves(ctx, 0, all)
		if err != nil {
			return err
		}
		records, err := tx.Audit().List(ctx, audit.Filter{}, all)
		if err != nil {
			return err
		}
		if len(records) != len(leaves) || int64(len(records)) != tree.Size || tree.Size == 0 {
			w.Fatalf("%d records, %d leaves, a tree of %d", len(records), len(leaves), tree.Size)
		}
		v := audit.NewVerifier(audit.Tree{})
		if err := v.Trust(audit.Checkpoint{Size: tree.Size, Root: tree.Root()}); err != nil {
			return err
		}
		for i := range leaves {
			if err := v.Add(audit.Entry{Seq: leaves[i].Seq, Leaf: leaves[i].Hashes[0], Record: &records[i]}); err != nil {
				return err
			}
		}
		return v.Finish()
	})
	if err != nil {
		w.Fatalf("the audit: %v", err)
	}
}
