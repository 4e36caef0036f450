package cli

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/internal/build"
	"github.com/aurea-dev/aurea/internal/config"
)

// Builder makes images from Dockerfiles.
type Builder interface {
	Build(ctx context.Context, order build.Order, upload io.Reader, tell func(build.Step) error) (build.Result, error)
}

// imageBuildCommand builds on this machine, as the other commands of images
// do: no server need run.
func (inv *invocation) imageBuildCommand() *cobra.Command {
	var order build.Order
	var args []string
	var folder string
	cmd := &cobra.Command{
		Use: "build [NAME]", Short: "Make an image from a Dockerfile, through a Docker Engine on this machine",
		Long: "Builds the Dockerfile NAME: one of those that come along (sandbox, node-expo), or one in the folder\nthat AUREA_DOCKERFILES names. Without a name it is sandbox, which makes the image that sandboxes\nget that name none (SANDBOX_IMAGE, aurea-sandbox:latest).\n\n" +
			"With --context FOLDER it builds the Dockerfile in that folder instead.\n\nThe result is kept in the engine, and taken over as an image of `aurea image ls`.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage(cmd, "name one Dockerfile")
			}
			return nil
		},
	}
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		cfg, err := inv.load(cmd, config.Worker)
		if err != nil {
			return err
		}
		if order.Args, err = pairs(cmd, "arg", args); err != nil {
			return err
		}
		order.Uploaded = folder != ""
		order.Name = strings.Join(names, "")
		b, err := inv.program.Builds(cfg)
		if err != nil {
			return err
		}
		return inv.build(cmd.Context(), b, order, folder)
	}
	offer(cmd, slices.DeleteFunc(config.Flags(config.Worker), func(f config.Flag) bool {
		return !slices.Contains([]string{"data", "sandbox-base", "images", "dockerfiles", "docker-host"}, f.Name)
	}))
	f := cmd.Flags()
	f.StringVarP(&order.Tag, "tag", "t", "", "what the image is called; by default SANDBOX_IMAGE for sandbox, else NAME")
	f.StringArrayVar(&args, "arg", nil, "the value of an ARG of the Dockerfile, as NAME=VALUE; can be given again")
	f.StringVar(&folder, "context", "", "build from this folder")
	f.StringVar(&order.Dockerfile, "file", "", "with --context: where in it the Dockerfile is")
	f.BoolVar(&order.Fresh, "fresh", false, "use nothing that an earlier build left")
	return cmd
}

func (inv *invocation) build(ctx context.Context, b Builder, order build.Order, folder string) error {
	var upload io.Reader
	if folder != "" {
		r, w := io.Pipe()
		var packing sync.WaitGroup
		packing.Go(func() { w.CloseWithError(pack(w, folder)) })
		defer func() { _ = r.Close(); packing.Wait() }()
		upload = r
	}
	r, err := b.Build(ctx, order, upload, inv.newBuildLog().tell)
	if err != nil {
		return err
	}
	if inv.json {
		return inv.printJSON(r)
	}
	_, err = fmt.Fprintf(inv.Out, "%s %s %s\n", plain(r.Image), short(r.Digest), size(r.Size))
	return err
}

// pack writes a folder as an archive. Links go as links; whoever reads it looks
// where they lead.
func pack(w io.Writer, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return fmt.Errorf("open the context: %w", err)
	}
	defer func() { _ = root.Close() }()
	t := tar.NewWriter(w)
	if err := t.AddFS(root.FS()); err != nil {
		return fmt.Errorf("read the context: %w", err)
	}
	return t.Close()
}

// buildLog prints what a build says, to where errors go: the answer is the
// image.
type buildLog struct {
	inv  *invocation
	at   int
	last time.Time
}

func (inv *invocation) newBuildLog() *buildLog { return &buildLog{inv: inv} }

func (l *buildLog) tell(s build.Step) error {
	if l.inv.json {
		return nil
	}
	var line string
	switch {
	case s.Number != l.at:
		l.at = s.Number
		line = fmt.Sprintf("[%d/%d] line %d: %s", s.Number, s.Of, s.Line, s.Text)
	case s.Doing == "build":
		line = "  " + s.Text
	case s.Total > 0 && s.Done < s.Total && time.Since(l.last) < time.Second:
		return nil // how far it is, told often
	default:
		l.last = time.Now()
		if line = "  " + s.Doing + ": " + s.Text; s.Total > 0 {
			line += fmt.Sprintf(" (%s of %s)", size(s.Done), size(s.Total))
		}
	}
	_, err := fmt.Fprintln(l.inv.Err, plain(line))
	return err
}

// pairs reads flags such as NAME=VALUE.
func pairs(cmd *cobra.Command, flag string, texts []string) (map[string]string, error) {
	found := map[string]string{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, usage(cmd, "--%s must be NAME=VALUE, not %q", flag, text)
		}
		found[name] = value
	}
	return found, nil
}
