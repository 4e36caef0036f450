package evidence

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
)

// Survey is what a walk over a finished workspace finds out beside its
// snapshot: what changed in it, and which files were left as artifacts. One
// walk serves all of it.
type Survey struct {
	differ differ
	// folder is the one whose regular files are listed, named as they are in
	// the workspace, at most most of them; those of up to small bytes come with
	// their bytes. A folder that is not there, or is no folder, holds nothing.
	folder string
	most   int
	small  int64

	left []Left
	more int
}

// NewSurvey prepares a survey; before holds the text of each file that was put
// into the workspace. The other parameters are told above.
func NewSurvey(before map[string]string, folder string, most int, small int64) *Survey {
	return &Survey{differ: differ{before: before, kept: map[string]bool{}}, folder: folder + "/", most: most, small: small}
}

// Diff returns the changes; see differ.
func (s *Survey) Diff() []byte { return s.differ.finish() }

// Left returns the artifacts, and how many more there are.
func (s *Survey) Left() (left []Left, more int) { return s.left, s.more }

// Look walks over a workspace for the survey alone.
func (s *Survey) Look(ctx context.Context, dir string, b Bounds) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open workspace: %w", err)
	}
	defer func() { _ = root.Close() }()
	_, err = walk(ctx, root, b, func(n node, content io.ReadSeeker) error { return s.visit(ctx, n, content) })
	if err != nil {
		return fmt.Errorf("look through the workspace: %w", err)
	}
	return nil
}

// visit takes one node, and leaves its content at the first byte.
func (s *Survey) visit(ctx context.Context, n node, content io.ReadSeeker) error {
	if err := s.differ.after(n, content); err != nil || n.kind != file {
		return err
	}
	if err := rewind(n, content); err != nil {
		return err
	}
	if !strings.HasPrefix(n.path, s.folder) {
		return nil
	}
	if len(s.left) >= s.most {
		s.more++
		return nil
	}
	l, err := collect(ctx, n, content, s.small)
	if err != nil {
		return fmt.Errorf("read %s: %w", printable(n.path), err)
	}
	l.Name = n.path
	s.left = append(s.left, l)
	return rewind(n, content)
}

func rewind(n node, content io.Seeker) error {
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read %s again: %w", printable(n.path), err)
	}
	return nil
}
