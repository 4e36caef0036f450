package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest/wire"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// maxFileCalls is how many requests about files are under way in one sandbox at
// once: each costs its guest a thread.
const maxFileCalls = 16

// knows returns an error unless the guest knows a kind of Open. A guest of an
// older release would break at one that it does not know.
func (c *Client) knows(ctx context.Context, kind wire.Kind) error {
	if kind.File() && kind != wire.KindWatch {
		kind = wire.KindStat // they came together
	}
	c.mu.Lock()
	known, asked := c.kinds[kind]
	c.mu.Unlock()
	if !asked {
		var err error
		if known, err = c.askKnows(ctx, kind); err != nil {
			return err
		}
		c.mu.Lock()
		if c.kinds == nil {
			c.kinds = map[wire.Kind]bool{}
		}
		c.kinds[kind] = known
		c.mu.Unlock()
	}
	if !known {
		return fault.New(fault.Unavailable, "the sandbox was made by an older release, whose guest cannot do this; make a new one").WithCode(sandbox.CodeOldGuest)
	}
	return nil
}

// askKnows asks the guest. Answers come in the order of the questions, so that
// when the ping behind it is answered, so is this, or never.
func (c *Client) askKnows(ctx context.Context, kind wire.Kind) (bool, error) {
	tag, answer, err := c.expect()
	if err != nil {
		return false, err
	}
	defer c.drop(tag)
	if err := c.send(ctx, wire.TypeKnows, 0, 0, wire.Knows{Tag: tag, Kind: kind}.Append(nil)); err != nil {
		return false, err
	}
	if err := c.Ping(ctx); err != nil {
		return false, err
	}
	select {
	case outcome := <-answer:
		return outcome.Status == wire.StatusOK, nil
	default:
		return false, nil
	}
}

// fileCall is one request about files under way.
type fileCall struct {
	*Process
	release func()
}

// begin sends a request about files. Its end is not waited for.
func (c *Client) begin(ctx context.Context, open wire.Open) (*fileCall, error) {
	if err := c.knows(ctx, open.Kind); err != nil {
		return nil, err
	}
	select {
	case c.fileCalls <- struct{}{}:
	case <-c.done:
		return nil, c.ended().err
	case <-ctx.Done():
		return nil, errWaiting(ctx)
	}
	p, err := c.register(open)
	if err == nil {
		if err = c.sendOpen(ctx, p.channel, open.Encode()); err != nil {
			c.unregister(p)
		}
	}
	if err != nil {
		<-c.fileCalls
		return nil, err
	}
	return &fileCall{Process: p, release: func() {
		c.unregister(p)
		<-c.fileCalls
	}}, nil
}

// drain hands on what the guest says until it is done, and returns how that
// ended. The second stream, and the first unless it goes to w, is bounded by
// most and returned.
func (f *fileCall) drain(ctx context.Context, w io.Writer, most int) (said [2][]byte, err error) {
	for {
		frame, err := f.pull(ctx)
		if errors.Is(err, io.EOF) {
			return said, f.settled(ctx)
		}
		if err == nil {
			err = take(frame, w, &said, most)
		}
		if err != nil {
			f.abort(ctx)
			return said, err
		}
	}
}

func take(frame sandbox.Frame, w io.Writer, said *[2][]byte, most int) error {
	i := frame.Stream - 1
	if i == 0 && w != nil {
		if _, err := w.Write(frame.Data); err != nil {
			return fmt.Errorf("write what was read: %w", err)
		}
		return nil
	}
	if len(said[i])+len(frame.Data) > most {
		return errNonsense(errors.New("it says too much"))
	}
	said[i] = append(said[i], frame.Data...)
	return nil
}

func errNonsense(err error) error {
	return fault.New(fault.Unavailable, "the guest talks nonsense: %w", err)
}

// do is a request about files without a body.
func (c *Client) do(ctx context.Context, open wire.Open, w io.Writer, most int) (said [2][]byte, err error) {
	call, err := c.begin(ctx, open)
	if err != nil {
		return said, err
	}
	defer call.release()
	return call.drain(ctx, w, most)
}

// infoOf puts what a guest says of a file into the words of package sandbox.
func infoOf(name string, e wire.Entry) sandbox.FileInfo {
	name = path.Join(name, e.Name)
	return sandbox.FileInfo{
		Path: name, Name: path.Base(name), Type: typeOf(e.Type), Size: e.Size,
		Mode: e.Mode, ModTime: e.ModTime.UTC(), Target: e.Target,
	}
}

func typeOf(t wire.FileType) sandbox.FileType {
	switch t {
	case wire.FileRegular:
		return sandbox.TypeFile
	case wire.FileFolder:
		return sandbox.TypeDir
	case wire.FileLink:
		return sandbox.TypeLink
	case wire.FileOther:
		return sandbox.TypeOther
	case wire.FileUnknown:
	}
	return ""
}

// Stat looks at a path.
func (c *Client) Stat(ctx context.Context, name string) (sandbox.FileInfo, error) {
	said, err := c.do(ctx, wire.Open{Kind: wire.KindStat, Path: name}, nil, wire.MaxEntry)
	return decodeInfo(name, said[0], err)
}

func decodeInfo(name string, said []byte, err error) (sandbox.FileInfo, error) {
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	e, err := wire.DecodeEntry(said)
	if err == nil && (e.Name != "" || e.Type == wire.FileUnknown) {
		err = errors.New("it speaks of another file")
	}
	if err != nil {
		return sandbox.FileInfo{}, errNonsense(err)
	}
	return infoOf(name, e), nil
}

// List lists what is below a folder.
func (c *Client) List(ctx context.Context, name string, depth, most int) ([]sandbox.FileInfo, bool, error) {
	open := wire.Open{Kind: wire.KindList, Path: name, File: wire.File{Depth: uint16(depth), Most: uint32(most)}}
	said, err := c.do(ctx, open, nil, sandbox.MaxListing+wire.MaxEntry)
	if err != nil {
		return nil, false, err
	}
	entries, more, err := wire.DecodeList(said[0], most)
	if err != nil {
		return nil, false, errNonsense(err)
	}
	found := make([]sandbox.FileInfo, 0, len(entries))
	for _, e := range entries {
		found = append(found, infoOf(name, e))
	}
	return found, more, nil
}

// furthest is an offset that no file has.
const furthest = math.MaxInt64 >> 8

// ReadFile writes a part of a file into w.
func (c *Client) ReadFile(ctx context.Context, name string, offset, length int64, w io.Writer) (sandbox.FileInfo, error) {
	limit := &counted{w: w, left: -1}
	if length >= 0 {
		limit.left = length
	}
	file := wire.File{Offset: min(offset, furthest), Length: min(max(length, -1), furthest)}
	said, err := c.do(ctx, wire.Open{Kind: wire.KindRead, Path: name, File: file}, limit, wire.MaxEntry)
	return decodeInfo(name, said[1], err)
}

// counted lets through no more than was asked for.
type counted struct {
	w    io.Writer
	left int64 // -1 is any number
}

func (c *counted) Write(p []byte) (int, error) {
	if c.left >= 0 {
		if int64(len(p)) > c.left {
			return 0, errNonsense(errors.New("it sends more than was asked for"))
		}
		c.left -= int64(len(p))
	}
	return c.w.Write(p)
}

// WriteFile puts a file there.
func (c *Client) WriteFile(ctx context.Context, name string, mode uint32, body io.Reader) (sandbox.FileInfo, error) {
	size := wire.Window
	if known, ok := body.(interface{ Len() int }); ok {
		size = min(known.Len()+1, size)
	}
	// A body that fails at once should not trouble the guest.
	first := make([]byte, size)
	n, err := io.ReadFull(body, first)
	whole := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if err != nil && !whole {
		return sandbox.FileInfo{}, fmt.Errorf("read what is to be written: %w", err)
	}
	if body = io.MultiReader(bytes.NewReader(first), body); whole {
		body = bytes.NewReader(first[:n])
	}
	call, err := c.begin(ctx, wire.Open{Kind: wire.KindWrite, Path: name, File: wire.File{Mode: mode, Length: -1}})
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	defer call.release()
	if err := call.feedAhead(ctx, body); err != nil {
		call.abort(ctx)
		return sandbox.FileInfo{}, err
	}
	said, err := call.drain(ctx, nil, wire.MaxEntry)
	return decodeInfo(name, said[0], err)
}

// feedAhead sends a body and its end. That the guest takes no more is not an
// error here: it says why with its end.
func (f *fileCall) feedAhead(ctx context.Context, body io.Reader) error {
	in := newInflow(f.Process, wire.Window)
	defer in.drop()
	b := make([]byte, inflowPiece)
	for {
		n, err := io.ReadFull(body, b)
		if n > 0 {
			if _, err := in.write(ctx, b[:n]); err != nil {
				if refusedInput(err) {
					return nil
				}
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return f.client.send(ctx, wire.TypeCloseInput, 0, f.channel, wire.Control{}.Append(nil))
		}
		if err != nil {
			return fmt.Errorf("read what is to be written: %w", err)
		}
	}
}

// change asks for a change of files that needs no body: Mkdir, Move, Copy or
// Remove.
func (c *Client) change(ctx context.Context, kind wire.Kind, name string, file wire.File) error {
	_, err := c.do(ctx, wire.Open{Kind: kind, Path: name, File: file}, nil, 0)
	return err
}
