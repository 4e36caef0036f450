package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
	"github.com/aurea-dev/aurea/internal/fault"
)

func (inv *invocation) sandboxCopyCommand() *cobra.Command {
	return inv.asking(&cobra.Command{
		Use: "cp SRC DST", Short: "Copy files and folders into a sandbox, or out of one", Args: both("from where and to where; one of both as ID:PATH"),
		Long: "Copies a file or a folder; one of SRC and DST is ID:PATH. What is there as a folder gets it inside;\n" +
			"else it gets the name that is said. - is standard input or output, for one file.\n\n" +
			"What comes out of a sandbox is not trusted: links that lead out of the folder and special files are left\nout and named, and a folder is never put over one that is there.",
	}, func(ctx context.Context, c *client.Client, args []string) error {
		from, inFrom := parsePlace(args[0])
		to, inTo := parsePlace(args[1])
		if inFrom == inTo {
			return &usageError{"one of both must be in a sandbox, as ID:PATH", "see `aurea sandbox cp --help`"}
		}
		box := from.box
		if inTo {
			box = to.box
		}
		s, err := findSandbox(ctx, c, box)
		if err != nil {
			return err
		}
		t := &transfer{inv: inv, c: c, sandbox: s.ID}
		defer t.end()
		if inTo {
			return t.upload(ctx, from.path, to.path)
		}
		return t.download(ctx, from.path, to.path)
	})
}

// place is one side of a copy.
type place struct{ box, path string }

// parsePlace tells ID:PATH from a path of this machine, which may have a colon
// behind a slash.
func parsePlace(text string) (p place, inside bool) {
	box, at, ok := strings.Cut(text, ":")
	if !ok || box == "" || strings.ContainsAny(box, "/\\") || strings.HasPrefix(box, ".") {
		return place{path: text}, false
	}
	if !path.IsAbs(at) {
		folder := strings.HasSuffix(at, "/") || at == ""
		if at = path.Join("/workspace", at); folder {
			at += "/"
		}
	}
	return place{box: box, path: at}, true
}

// transfer is one copy. It counts what was carried, and shows it on a terminal.
type transfer struct {
	inv     *invocation
	c       *client.Client
	sandbox string
	bytes   int64
	shown   time.Time
	drawn   bool
}

func (t *transfer) count(r io.Reader) io.Reader { return io.TeeReader(r, t) }

// Write counts.
func (t *transfer) Write(p []byte) (int, error) {
	const often = 100 * time.Millisecond
	t.bytes += int64(len(p))
	if _, _, ok := terminal(t.inv.Err); ok && !t.inv.json && time.Since(t.shown) > often {
		t.shown, t.drawn = time.Now(), true
		_, _ = fmt.Fprintf(t.inv.Err, "\r\x1b[K%s", size(t.bytes))
	}
	return len(p), nil
}

func (t *transfer) end() {
	if t.drawn {
		_, _ = fmt.Fprint(t.inv.Err, "\r\x1b[K")
	}
}

// inFolder is where something called name goes: inside, if to is a folder.
func (t *transfer) inFolder(ctx context.Context, to, name string) (string, error) {
	about, err := t.c.StatFile(ctx, t.sandbox, to)
	var p *client.Problem
	switch {
	case err == nil && about.Type == "dir", strings.HasSuffix(to, "/"):
		return path.Join(to, name), nil
	case errors.As(err, &p) && p.Status == http.StatusNotFound:
		return to, nil
	}
	return to, err
}

func (t *transfer) upload(ctx context.Context, from, to string) error {
	if from == "-" {
		return t.c.WriteFile(ctx, t.sandbox, to, "", t.count(t.inv.In))
	}
	about, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, "there is no %s", from)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", from, err)
	}
	whole, err := filepath.Abs(from) // . has a name too
	if err != nil {
		return fmt.Errorf("read %s: %w", from, err)
	}
	if to, err = t.inFolder(ctx, to, filepath.Base(whole)); err != nil {
		return err
	}
	switch {
	case about.IsDir():
		return t.uploadFolder(ctx, whole, to)
	case !about.Mode().IsRegular():
		return fault.New(fault.Invalid, "%s is neither a file nor a folder", from)
	}
	f, err := os.Open(whole)
	if err != nil {
		return fmt.Errorf("read %s: %w", from, err)
	}
	defer func() { _ = f.Close() }()
	return t.c.WriteFile(ctx, t.sandbox, to, fmt.Sprintf("%04o", about.Mode().Perm()), t.count(f))
}

func (t *transfer) uploadFolder(ctx context.Context, from, to string) error {
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		skipped, err := packFolder(from, w)
		_ = w.CloseWithError(err)
		for _, name := range skipped {
			t.leaveOut(name, "neither a file, a folder nor a link")
		}
		packed <- err
	}()
	err := t.c.UploadFiles(ctx, t.sandbox, to, t.count(r))
	_ = r.CloseWithError(io.ErrClosedPipe) // one who packs for nobody ends
	if perr := <-packed; perr != nil && !errors.Is(perr, io.ErrClosedPipe) {
		return perr
	}
	return err
}

func (t *transfer) leaveOut(name, why string) {
	_, _ = fmt.Fprintf(t.inv.Err, "aurea: left out %s: %s\n", plain(name), plain(why))
}

func (t *transfer) download(ctx context.Context, from, to string) error {
	about, err := t.c.StatFile(ctx, t.sandbox, from)
	if err != nil {
		return err
	}
	if about.Type != "dir" {
		return t.downloadFile(ctx, from, to)
	}
	if to == "-" {
		return fault.New(fault.Invalid, "%s is a folder; - takes one file", from)
	}
	if to, err = localPlace(to, path.Base(from)); err != nil {
		return err
	}
	body, err := t.c.DownloadFiles(ctx, t.sandbox, from)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	left, err := unpackFolder(ctx, t.count(body), to)
	for _, name := range left {
		_, _ = fmt.Fprintf(t.inv.Err, "aurea: left out %s\n", plain(name))
	}
	return err
}

// localPlace is where something called name goes on this machine.
func localPlace(to, name string) (string, error) {
	about, err := os.Stat(to)
	switch {
	case err == nil && about.IsDir():
		if name == "/" || name == "." || name == ".." {
			name = "root"
		}
		return filepath.Join(to, name), nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("look at %s: %w", to, err)
	}
	return to, nil
}

// downloadFile writes a file beside its place and then puts it there: what is
// there stays until all of the new one is.
func (t *transfer) downloadFile(ctx context.Context, from, to string) error {
	body, err := t.c.ReadFile(ctx, t.sandbox, from)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	if to == "-" {
		_, err := io.Copy(t.inv.Out, body)
		return err
	}
	if to, err = localPlace(to, path.Base(from)); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(to), ".aurea-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", to, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // it is gone where it was put in its place
	_, err = io.Copy(f, t.count(body))
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", to, err)
	}
	if err := os.Rename(f.Name(), to); err != nil {
		return fmt.Errorf("write %s: %w", to, err)
	}
	return nil
}

func (inv *invocation) listFiles(ctx context.Context, c *client.Client, text string) error {
	at, inside := parsePlace(text)
	if !inside {
		return &usageError{"name files as ID:PATH", "see `aurea sandbox ls --help`"}
	}
	s, err := findSandbox(ctx, c, at.box)
	if err != nil {
		return err
	}
	files, more, err := c.Files(ctx, s.ID, path.Clean(at.path), 1)
	if err != nil {
		return err
	}
	if inv.json {
		return inv.printJSON(files)
	}
	rows, now := [][]string{{"TYPE", "MODE", "SIZE", "MODIFIED", "NAME"}}, time.Now()
	for _, f := range files {
		name := f.Name
		if f.Target != nil {
			name += " -> " + *f.Target
		}
		rows = append(rows, []string{f.Type, f.Mode, size(f.Size), inv.moment(&f.ModifiedAt, now), name})
	}
	if more {
		rows = append(rows, []string{"…"})
	}
	return inv.printTable(rows)
}
