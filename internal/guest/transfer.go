package guest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"syscall"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest/wire"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Command is what to start.
type Command struct {
	ID         string
	Args       []string
	Env        []string // whole: nothing is added to it
	Dir, User  string
	TTY, Stdin bool
	Cols, Rows uint16
}

// Exec starts a command. When ctx ends before the guest has answered, the
// command may run all the same, and Attach finds it.
func (c *Client) Exec(ctx context.Context, command Command) (*Process, error) {
	return c.open(ctx, wire.Open{
		Kind: wire.KindExec, ID: command.ID,
		Args: command.Args, Env: command.Env, Dir: command.Dir, User: command.User,
		TTY: command.TTY, Stdin: command.Stdin, Cols: command.Cols, Rows: command.Rows,
	})
}

// Attach finds a command that was started earlier, also by another session.
// Its output goes on at from.
func (c *Client) Attach(ctx context.Context, id string, from sandbox.Offsets) (*Process, error) {
	return c.open(ctx, wire.Open{Kind: wire.KindAttach, ID: id, Stdout: from.Stdout, Stderr: from.Stderr})
}

// abortTime bounds how long a guest is told that nobody wants a transfer any
// more.
const abortTime = 2 * time.Second

// Put unpacks a tar stream below dir.
func (c *Client) Put(ctx context.Context, dir string, archive io.Reader) error {
	return c.put(ctx, wire.Open{Kind: wire.KindPut, Path: dir}, archive)
}

// Lock unpacks a tar stream below dir so that no command can change what it
// makes, but for what the stream gives to somebody.
func (c *Client) Lock(ctx context.Context, dir string, archive io.Reader) error {
	return c.put(ctx, wire.Open{Kind: wire.KindLock, Path: dir}, archive)
}

func (c *Client) put(ctx context.Context, open wire.Open, archive io.Reader) error {
	size := writeBatch
	if known, ok := archive.(interface{ Len() int }); ok {
		size = min(known.Len()+1, size)
	}
	first := make([]byte, size)
	n, err := io.ReadFull(archive, first)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return c.putAtOnce(ctx, open, first[:n])
	}
	if err != nil {
		return fmt.Errorf("read the archive: %w", err)
	}
	archive = io.MultiReader(bytes.NewReader(first), archive)
	p, err := c.open(ctx, open)
	if err != nil {
		return err
	}
	defer c.unregister(p)
	if err := p.feed(ctx, archive); err != nil {
		if fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound) {
			// The guest takes no more, or has even forgotten the transfer. It
			// says why with the transfer's end.
			return cmp.Or(p.settled(ctx), err)
		}
		p.abort(ctx)
		return err
	}
	return p.settled(ctx)
}

// putAtOnce sends an archive that the guest takes in one go, and waits for
// nothing but the transfer's end: each answer costs a way through the sandbox's
// kernel and back.
func (c *Client) putAtOnce(ctx context.Context, open wire.Open, archive []byte) error {
	p, err := c.register(open)
	if err != nil {
		return err
	}
	defer c.unregister(p)
	if err := c.sendAll(ctx, append(openFrames(p.channel, open.Encode()), inputFrames(p.channel, archive)...)); err != nil {
		p.abort(ctx)
		return err
	}
	return p.settled(ctx)
}

// Supply implements sandbox.Supplier.
func (p *Process) Supply(ctx context.Context, files sandbox.Files, input []byte) error {
	if err := checkPath("dir", files.Dir); err != nil {
		return err
	}
	open := wire.Open{Kind: wire.KindPutFor, ID: p.id, Path: path.Clean(files.Dir)}
	if files.Locked {
		open.Kind = wire.KindLockFor
	}
	archive, err := io.ReadAll(io.LimitReader(files.Tar, writeBatch+1))
	if err != nil {
		return fmt.Errorf("read the archive: %w", err)
	}
	c := p.client
	if len(archive) > writeBatch || len(input) > writeBatch {
		// More than goes out in one go: one after the other.
		open.Kind, open.ID = wire.KindPut, ""
		if files.Locked {
			open.Kind = wire.KindLock
		}
		if err := c.put(ctx, open, io.MultiReader(bytes.NewReader(archive), files.Tar)); err != nil {
			return err
		}
		_ = p.Feed(ctx, input) // what became of it shows in what the process does
		return nil
	}
	t, err := c.register(open)
	if err != nil {
		return err
	}
	defer c.unregister(t)
	frames := append(openFrames(t.channel, open.Encode()), inputFrames(t.channel, archive)...)
	if err := c.sendAll(ctx, append(frames, inputFrames(p.channel, input)...)); err != nil {
		t.abort(ctx)
		return err
	}
	return t.settled(ctx)
}

// GetAfter implements sandbox.Leaver. What it writes is hostile.
func (p *Process) GetAfter(ctx context.Context, name string, w io.Writer) error {
	if err := checkPath("path", name); err != nil {
		return err
	}
	return p.client.get(ctx, wire.Open{Kind: wire.KindGetAfter, ID: p.id, Path: path.Clean(name)}, w)
}

// feed sends all of r as input, and its end.
func (p *Process) feed(ctx context.Context, r io.Reader) error {
	b := make([]byte, writeBatch)
	for {
		n, err := io.ReadFull(r, b)
		if n > 0 {
			if err := p.Write(ctx, b[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return p.CloseInput(ctx)
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
	}
}

// Get packs path as a tar stream into w. What it writes is hostile.
func (c *Client) Get(ctx context.Context, path string, w io.Writer) error {
	return c.get(ctx, wire.Open{Kind: wire.KindGet, Path: path}, w)
}

func (c *Client) get(ctx context.Context, open wire.Open, w io.Writer) error {
	p, err := c.open(ctx, open)
	if err != nil {
		return err
	}
	defer c.unregister(p)
	for {
		frame, err := p.Next(ctx)
		if errors.Is(err, io.EOF) {
			return p.settled(ctx)
		}
		if err == nil {
			if _, werr := w.Write(frame.Data); werr != nil {
				err = fmt.Errorf("write the archive: %w", werr)
			}
		}
		if err != nil {
			p.abort(ctx)
			return err
		}
	}
}

// settled waits for the end of a transfer and returns how it ended.
func (p *Process) settled(ctx context.Context) error {
	exit, err := p.Wait(ctx)
	if err != nil {
		p.abort(ctx)
		return err
	}
	if exit.Lost {
		return errGone
	}
	return asFault(p.result)
}

// abort ends a transfer that nobody waits for any more.
func (p *Process) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
	defer cancel()
	control := wire.Control{Signal: uint8(syscall.SIGKILL)}
	// Also into a sandbox that is paused: it finds it when it goes on.
	_ = p.client.push(ctx, wire.TypeSignal, 0, p.channel, control.Append(nil))
}
