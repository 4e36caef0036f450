package keeper

import (
	"context"
	"maps"

	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
)

// placed is the labels of a sandbox of the caller's: one whose key is narrowed to
// a project makes and leaves sandboxes there only.
func placed(c policy.Caller, labels map[string]string) (map[string]string, error) {
	if c.Project() == 0 {
		return labels, nil
	}
	project, err := c.PlaceLabel(labels[live.LabelProject])
	if err != nil {
		return nil, err
	}
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[live.LabelProject] = project
	return labels, nil
}

// relabel gives a sandbox other labels. In another project it belongs to others:
// links to its ports and tokens that were made before open nothing any more.
func relabel(s *live.Sandbox, labels map[string]string) {
	before := s.Spec.Project()
	s.Spec.Labels = labels
	if s.Spec.Project() != before {
		s.LinkKey = live.NewLinkKey()
	}
}

// demandProject refuses what a caller cannot see because of its project alone:
// what is in a sandbox is where the sandbox is.
func demandProject(ctx context.Context, tx store.Tx, c policy.Caller, sandboxID string) error {
	if c.Project() == 0 {
		return nil
	}
	_, err := visible(ctx, tx, sandboxID)
	return err
}

// noStorage refuses stored files to a caller whose key is narrowed to a project:
// they belong to an owner alone.
func noStorage(c policy.Caller, how *live.Sync) error {
	if how == nil {
		return nil
	}
	return c.NoProject("stored files")
}
