package manifest

import (
	"cmp"
	"slices"
)

// Node is a worker in the tree of who started whom.
type Node struct {
	WorkerID string  `json:"worker_id"`
	ParentID *string `json:"parent_id"`
	Depth    int     `json:"depth"`
	State    State   `json:"state"`
	Children []*Node `json:"children"`
}

// Lineage is who started whom, and what is odd about it.
type Lineage struct {
	Roots []*Node `json:"roots"`
	// Orphans are workers that are there and whose parent is not, any more or at
	// all. Cycles are workers that come from themselves; BadDepths have a depth
	// that is not one more than their parent's. None of both can be made here:
	// they mean that somebody has changed the database.
	Orphans   []string `json:"orphans"`
	Cycles    []string `json:"cycles"`
	BadDepths []string `json:"bad_depths"`
}

// Trace makes the tree of workers. Those with a parent that is not among them
// stand at the top, as orphans where they live; so do those of a cycle.
func Trace(workers []Worker) Lineage {
	l := Lineage{Roots: []*Node{}, Orphans: []string{}, Cycles: []string{}, BadDepths: []string{}}
	byID := make(map[string]*Worker, len(workers))
	nodes := make(map[string]*Node, len(workers))
	for i := range workers {
		w := &workers[i]
		n := &Node{WorkerID: w.ID(), Depth: w.Manifest.Depth, State: w.State, Children: []*Node{}}
		if p := w.Manifest.ParentID; p != "" {
			n.ParentID = &p
		}
		byID[w.ID()], nodes[w.ID()] = w, n
	}
	for i := range workers {
		w := &workers[i]
		n, parent := nodes[w.ID()], byID[w.Manifest.ParentID]
		switch {
		case w.Manifest.Root():
			l.Roots = append(l.Roots, n)
			continue
		case circles(w, byID):
			l.Cycles = append(l.Cycles, w.ID())
			l.Roots = append(l.Roots, n)
			continue
		case parent == nil:
			l.Roots = append(l.Roots, n)
		default:
			nodes[parent.ID()].Children = append(nodes[parent.ID()].Children, n)
		}
		if w.State.Registered() && (parent == nil || !parent.State.Registered()) {
			l.Orphans = append(l.Orphans, w.ID())
		}
		if parent != nil && w.Manifest.Depth != parent.Manifest.Depth+1 {
			l.BadDepths = append(l.BadDepths, w.ID())
		}
	}
	for _, n := range nodes {
		sortNodes(n.Children)
	}
	sortNodes(l.Roots)
	for _, ids := range [][]string{l.Orphans, l.Cycles, l.BadDepths} {
		slices.Sort(ids)
	}
	return l
}

// circles reports whether a worker is its own ancestor.
func circles(w *Worker, byID map[string]*Worker) bool {
	seen := map[string]bool{}
	for at := w; at != nil && !at.Manifest.Root(); at = byID[at.Manifest.ParentID] {
		if at.Manifest.ParentID == w.ID() {
			return true
		}
		if seen[at.ID()] {
			return false // it leads into a cycle and is not in it
		}
		seen[at.ID()] = true
	}
	return false
}

func sortNodes(list []*Node) {
	slices.SortFunc(list, func(a, b *Node) int { return cmp.Compare(a.WorkerID, b.WorkerID) })
}
