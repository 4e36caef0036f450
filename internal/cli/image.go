package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/image"
)

// imageCommand works on the worker's folder itself: images are a machine's
// own, and no server need run.
func (inv *invocation) imageCommand() *cobra.Command {
	return group("image", "Look after the images that sandboxes start from",
		inv.imageListCommand(), inv.imagePullCommand(), inv.imageImportCommand(), inv.imageBuildCommand(), inv.imageTagCommand(),
		inv.imagePushCommand(), inv.imageRemoveCommand(), inv.imageInspectCommand(), inv.imageCollectCommand())
}

// imaging makes a command that works on the images of this machine.
func (inv *invocation) imaging(cmd *cobra.Command, run func(ctx context.Context, s *image.Store, args []string) error) *cobra.Command {
	flags := config.Flags(config.Worker)
	offer(cmd, slices.DeleteFunc(flags, func(f config.Flag) bool {
		return !slices.Contains([]string{"data", "sandbox-base", "images", "host-limit", "insecure-registries"}, f.Name)
	}))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := inv.load(cmd, config.Worker)
		if err != nil {
			return err
		}
		s, err := inv.program.Images(cfg)
		if err != nil {
			return err
		}
		return run(cmd.Context(), s, args)
	}
	return cmd
}

func (inv *invocation) imageListCommand() *cobra.Command {
	return inv.imaging(&cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List the images of this machine", Args: noArgs},
		func(_ context.Context, s *image.Store, _ []string) error {
			list, err := s.List()
			if err != nil {
				return err
			}
			if inv.json {
				return inv.printJSON(list)
			}
			rows, now := [][]string{{"NAME", "DIGEST", "SIZE", "ADDED", "FROM"}}, time.Now()
			for _, l := range list {
				from := l.Source
				if l.Follows != "" {
					from = "alias of " + l.Follows
				}
				rows = append(rows, []string{orDash(l.Name), orDash(short(l.Digest)), size(l.Size), inv.moment(&l.Added, now), orDash(from)})
			}
			return inv.printTable(rows)
		})
}

func (inv *invocation) imagePullCommand() *cobra.Command {
	return inv.imaging(&cobra.Command{
		Use: "pull NAME...", Short: "Bring images from their registries; host is this machine's own programs", Args: atLeastOne("image"),
	}, func(ctx context.Context, s *image.Store, args []string) error {
		for _, name := range args {
			bar := inv.newBar(name)
			r, err := s.Pull(ctx, name, bar.tell)
			bar.end()
			if err != nil {
				return err
			}
			if err := inv.printImage(name, r); err != nil {
				return err
			}
		}
		return nil
	})
}

func (inv *invocation) imageImportCommand() *cobra.Command {
	return inv.imaging(&cobra.Command{
		Use: "import FILE NAME", Short: "Make an image from a docker save, an OCI layout or the tar of a root; - reads from standard input",
		Args: both("a file and a name"),
	}, func(ctx context.Context, s *image.Store, args []string) error {
		bar := inv.newBar(args[1])
		var r image.Record
		var err error
		if args[0] == "-" {
			r, err = s.ImportArchive(ctx, inv.In, args[1], "standard input", bar.tell)
		} else {
			r, err = s.Import(ctx, args[0], args[1], bar.tell)
		}
		bar.end()
		if err != nil {
			return err
		}
		return inv.printImage(args[1], r)
	})
}

func (inv *invocation) imageTagCommand() *cobra.Command {
	var alias bool
	cmd := inv.imaging(&cobra.Command{
		Use: "tag IMAGE NAME", Short: "Give an image another name", Args: both("an image and a name"),
		Long: "Gives an image another name.\n\nWith --alias the name stands for IMAGE whatever that will be: a client that asks for\n" +
			"NAME gets what IMAGE is at that moment. IMAGE need not be there yet.",
	}, func(ctx context.Context, s *image.Store, args []string) error {
		if alias {
			if err := s.Alias(ctx, args[1], args[0]); err != nil {
				return err
			}
			return inv.printDone(args[1], "an alias of "+args[0])
		}
		r, err := s.FindShort(args[0])
		if err != nil {
			return err
		}
		if err := s.Tag(ctx, r.Digest, args[1]); err != nil {
			return err
		}
		return inv.printImage(args[1], r)
	})
	cmd.Flags().BoolVar(&alias, "alias", false, "let NAME follow IMAGE")
	return cmd
}

func (inv *invocation) imagePushCommand() *cobra.Command {
	return inv.imaging(&cobra.Command{
		Use: "push IMAGE [NAME]", Short: "Send an image to a registry, under its own name or another", Args: oneOrTwo("an image, and perhaps the name to push it under"),
	}, func(ctx context.Context, s *image.Store, args []string) error {
		to := args[len(args)-1]
		bar := inv.newBar(to)
		r, err := s.Push(ctx, args[0], to, bar.tell)
		bar.end()
		if err != nil {
			return err
		}
		return inv.printImage(to, r)
	})
}

func (inv *invocation) imageRemoveCommand() *cobra.Command {
	return inv.imaging(&cobra.Command{
		Use: "rm NAME...", Short: "Remove names, or images by digest; gc then frees the room", Args: atLeastOne("image"),
	}, func(ctx context.Context, s *image.Store, args []string) error {
		for _, name := range args {
			if err := s.Remove(ctx, name); err != nil {
				return err
			}
			if err := inv.printDone(name, "removed"); err != nil {
				return err
			}
		}
		return nil
	})
}

func (inv *invocation) imageInspectCommand() *cobra.Command {
	return inv.imaging(&cobra.Command{Use: "inspect IMAGE", Short: "Show all that is known of an image", Args: exactly("image")},
		func(_ context.Context, s *image.Store, args []string) error {
			r, err := s.FindShort(args[0])
			if err != nil {
				return err
			}
			d, err := s.Inspect(r.Digest)
			if err != nil {
				return err
			}
			if inv.json {
				return inv.printJSON(d)
			}
			rows := [][]string{
				{"digest", d.Digest},
				{"names", orDash(strings.Join(d.Names, " "))},
				{"from", d.Source},
				{"added", inv.moment(&d.Added, time.Now())},
				{"for", "linux/" + d.Architecture},
				{"size", size(d.Size)},
				{"layers", strconv.Itoa(len(d.Layers))},
				{"user", orDash(d.User)},
				{"root", orDash(d.Root)},
				{"root takes", size(d.RootBytes)},
			}
			for _, v := range d.Env {
				rows = append(rows, []string{"env", v})
			}
			for _, l := range d.Left {
				rows = append(rows, []string{"left out", l.Path + ": " + l.Reason})
			}
			if more := d.LeftCount - len(d.Left); more > 0 {
				rows = append(rows, []string{"left out", fmt.Sprintf("and %d more", more)})
			}
			return inv.printTable(rows)
		})
}

func (inv *invocation) imageCollectCommand() *cobra.Command {
	var dry bool
	cmd := inv.imaging(&cobra.Command{
		Use: "gc", Short: "Free the room of images without a name, and of what nothing needs", Args: noArgs,
		Long: "Removes images that have no name, layers that no image needs, and roots that were made for\nan earlier release. Roots that live sandboxes run from stay.",
	}, func(ctx context.Context, s *image.Store, _ []string) error {
		got, err := s.GC(ctx, nil, dry)
		if err != nil {
			return err
		}
		if inv.json {
			return inv.printJSON(got)
		}
		did := "removed"
		if dry {
			did = "would remove"
		}
		_, err = fmt.Fprintf(inv.Out, "%s %d images, %d blobs and %d roots: %s; %d roots are in use\n", did, len(got.Images), got.Blobs, got.Roots, size(got.Bytes), got.InUse)
		return err
	})
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be removed")
	return cmd
}

func (inv *invocation) printImage(name string, r image.Record) error {
	if inv.json {
		return inv.printJSON(r)
	}
	_, err := fmt.Fprintf(inv.Out, "%s %s %s\n", plain(name), short(r.Digest), size(r.Size))
	if err == nil && r.LeftCount > 0 {
		_, err = fmt.Fprintf(inv.Out, "%d entries are left out; see `aurea image inspect %s`\n", r.LeftCount, plain(name))
	}
	return err
}

func (inv *invocation) printDone(name, what string) error {
	if inv.json {
		return inv.printJSON(map[string]string{"name": name, "done": what})
	}
	_, err := fmt.Fprintf(inv.Out, "%s: %s\n", plain(name), plain(what))
	return err
}

// bar shows progress on a terminal, and nothing anywhere else.
type bar struct {
	inv   *invocation
	name  string
	width int

	mu    sync.Mutex
	doing string
	parts map[string]image.Step
	last  time.Time
	drawn bool
}

func (inv *invocation) newBar(name string) *bar {
	width, _, ok := terminal(inv.Err)
	if !ok || inv.json {
		width = 0
	}
	return &bar{inv: inv, name: name, width: width, parts: map[string]image.Step{}}
}

func (b *bar) tell(s image.Step) {
	const often = 100 * time.Millisecond
	if b.width == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.Doing != b.doing {
		b.doing = s.Doing
		clear(b.parts)
	}
	b.parts[s.What] = s
	if time.Since(b.last) < often {
		return
	}
	b.last, b.drawn = time.Now(), true
	var done, total int64
	for _, p := range b.parts {
		done, total = done+p.Done, total+p.Total
	}
	line := fmt.Sprintf("%s %s %s", plain(b.name), b.doing, size(done))
	if total > 0 {
		line += " of " + size(total)
	}
	_, _ = fmt.Fprintf(b.inv.Err, "\r\x1b[K%s", clip(line, b.width-1))
}

// end takes the bar away.
func (b *bar) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drawn {
		b.drawn = false
		_, _ = fmt.Fprint(b.inv.Err, "\r\x1b[K")
	}
}

// short is enough of a digest for people.
func short(digest string) string {
	const enough = 12
	hex := strings.TrimPrefix(digest, "sha256:")
	return hex[:min(enough, len(hex))]
}

// size writes a number of bytes as people say it.
func size(n int64) string {
	const kilo = 1000
	if n < kilo {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n), ""
	for _, unit = range []string{"kB", "MB", "GB", "TB"} {
		if v /= kilo; v < kilo {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}

func orDash(s string) string { return or(&s, "-") }

func both(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 2 {
			return usage(cmd, "name %s", what)
		}
		return nil
	}
}

func oneOrTwo(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < 1 || len(args) > 2 {
			return usage(cmd, "name %s", what)
		}
		return nil
	}
}
