package guest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/guest/wire"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// answers has the liar answer the question what it knows, and the ping behind
// it, and then the next Open with these frames, whose channel it puts in.
func (l *liar) answers(knows bool, frames ...[]byte) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, payload := l.expect(wire.TypeKnows)
		question, err := wire.DecodeKnows(payload)
		if err != nil {
			l.t.Errorf("the question: %v", err)
			return
		}
		_, payload = l.expect(wire.TypePing)
		ping, err := wire.DecodeControl(payload)
		if err != nil {
			l.t.Errorf("the ping: %v", err)
			return
		}
		if knows {
			l.say(wire.AppendFrame(nil, wire.TypeDone, 0, 0, wire.Done{Tag: question.Tag}.Append(nil)))
		}
		l.say(wire.AppendFrame(nil, wire.TypeDone, 0, 0, wire.Done{Tag: ping.Tag}.Append(nil)))
		if len(frames) == 0 {
			return
		}
		l.expect(wire.TypeOpen)
		for _, f := range frames {
			_, _ = l.out.Write(f) // nobody may be there any more
		}
	}()
	return ended
}

// said is an answer to a request about files on the first channel.
func said(first, second []byte, o wire.Outcome) [][]byte {
	frames := [][]byte{wire.AppendFrame(nil, wire.TypeOpened, 0, 1, wire.Opened{}.Append(nil))}
	for i, data := range [][]byte{first, second} {
		at := int64(0)
		for len(data) > wire.MaxOutput {
			frames = append(frames, output(uint8(i+1), at, 0, data[:wire.MaxOutput]))
			data = data[wire.MaxOutput:]
			at += wire.MaxOutput
		}
		frames = append(frames, output(uint8(i+1), at, wire.FlagEnd, data))
	}
	return append(frames, wire.AppendFrame(nil, wire.TypeExit, 0, 1, wire.Exit{Ended: time.Now(), Outcome: o}.Append(nil)))
}

// A guest of an older release is asked first, and never sent what it does not
// know. It goes on as before.
func TestOlderGuest(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(Box) error{
		"stat":  func(b Box) error { _, err := b.Stat(t.Context(), "/a"); return err },
		"write": func(b Box) error { _, err := b.WriteFile(t.Context(), "/a", 0, strings.NewReader("x")); return err },
		"watch": func(b Box) error { _, err := b.Watch(t.Context(), "/a", true); return err },
		"disk":  func(b Box) error { _, err := b.Disk(t.Context()); return err },
		"dial":  func(b Box) error { _, err := b.Dial(t.Context(), 80); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLiar(t)
			c := l.connect()
			done := l.answers(false)
			for range 2 { // the second time it is known
				err := call(Box{Client: c})
				if !fault.Is(err, fault.Unavailable) || fault.CodeOf(err) != sandbox.CodeOldGuest {
					t.Errorf("%v", err)
				}
			}
			<-done
			l.open(c)
			if c.Err() != nil {
				t.Error(c.Err())
			}
		})
	}
}

// What a guest says of files is an error, or it is what was asked for.
func TestFileLies(t *testing.T) {
	t.Parallel()
	entry := wire.Entry{Type: wire.FileRegular, Size: 3}
	listed := func(names ...string) []byte {
		var b []byte
		for _, name := range names {
			b = wire.AppendListed(b, wire.Entry{Name: name, Type: wire.FileRegular})
		}
		return wire.AppendListEnd(b, false)
	}
	stat := func(b Box) error { _, err := b.Stat(t.Context(), "/a"); return err }
	list := func(b Box) error { _, _, err := b.List(t.Context(), "/a", 1, 2); return err }
	read := func(b Box) error { _, err := b.ReadFile(t.Context(), "/a", 0, 3, io.Discard); return err }
	write := func(b Box) error { _, err := b.WriteFile(t.Context(), "/a", 0, strings.NewReader("x")); return err }
	disk := func(b Box) error { _, err := b.Disk(t.Context()); return err }
	remove := func(b Box) error { return b.Remove(t.Context(), "/a", true) }
	for name, lie := range map[string]struct {
		call   func(Box) error
		frames [][]byte
	}{
		"an entry of another file":  {stat, said(wire.Entry{Name: "b", Type: wire.FileRegular}.Append(nil), nil, wire.Outcome{})},
		"a file of no type":         {stat, said(wire.Entry{}.Append(nil), nil, wire.Outcome{})},
		"nothing":                   {stat, said(nil, nil, wire.Outcome{})},
		"an entry without end":      {stat, said(make([]byte, 3*wire.MaxEntry), nil, wire.Outcome{})},
		"a second stream":           {stat, said(entry.Append(nil), make([]byte, 3*wire.MaxEntry), wire.Outcome{})},
		"a listing upwards":         {list, said(listed("../b"), nil, wire.Outcome{})},
		"more than was asked for":   {list, said(listed("a", "b", "c"), nil, wire.Outcome{})},
		"a listing out of order":    {list, said(listed("b", "a"), nil, wire.Outcome{})},
		"a longer file":             {read, said([]byte("four"), entry.Append(nil), wire.Outcome{})},
		"no info of what was read":  {read, said([]byte("abc"), nil, wire.Outcome{})},
		"no info of what was made":  {write, said(nil, nil, wire.Outcome{})},
		"no bytes at all":           {disk, said(nil, nil, wire.Outcome{})},
		"more bytes than there are": {disk, said(bytes.Repeat([]byte{255}, wire.MaxDisk), nil, wire.Outcome{})},
		"a number without end":      {disk, said(make([]byte, 2*wire.MaxDisk), nil, wire.Outcome{})},
		"words where none belong":   {remove, said([]byte("x"), nil, wire.Outcome{})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLiar(t)
			b := Box{Client: l.connect()}
			done := l.answers(true, lie.frames...)
			if err := lie.call(b); !fault.Is(err, fault.Unavailable) {
				t.Errorf("%v", err)
			}
			<-done
		})
	}
}

// The outcomes of requests about files are faults with kinds and codes.
func TestFileFaults(t *testing.T) {
	t.Parallel()
	for status, want := range meanings() {
		l := newLiar(t)
		b := Box{Client: l.connect()}
		done := l.answers(true, said(nil, nil, wire.Outcome{Status: status, Message: "because\x1b"})...)
		err := b.Mkdir(t.Context(), "/a", 0)
		if !fault.Is(err, want.kind) || want.code != "" && fault.CodeOf(err) != want.code || !strings.Contains(err.Error(), "because.") {
			t.Errorf("%d: %v, want %+v", status, err, want)
		}
		<-done
	}
}

// A guest that lets a watch or a connection wait, or floods it, holds up nobody
// else and fills no memory.
func TestStandingLies(t *testing.T) {
	t.Parallel()
	opened := wire.AppendFrame(nil, wire.TypeOpened, 0, 1, wire.Opened{}.Append(nil))
	flood := [][]byte{opened}
	for at := int64(0); at <= wire.SmallWindow; at += wire.MaxOutput {
		flood = append(flood, output(1, at, 0, make([]byte, wire.MaxOutput)))
	}
	t.Run("a flood", func(t *testing.T) {
		t.Parallel()
		l := newLiar(t)
		c := l.connect()
		done := l.answers(true, flood...)
		conn, err := c.Dial(t.Context(), 80)
		<-c.Done()
		l.out.Close()
		<-done
		if err != nil { // the flood was over before the answer was heard
			if !fault.Is(err, fault.Unavailable) {
				t.Error(err)
			}
			return
		}
		if _, err := io.Copy(io.Discard, conn); err == nil {
			t.Error("the connection ended well")
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("changes of nothing", func(t *testing.T) {
		t.Parallel()
		l := newLiar(t)
		c := l.connect()
		done := l.answers(true, opened, output(1, 0, 0, wire.Change{Kind: wire.ChangeCreated, Name: "../../etc"}.Append(nil)))
		w, err := c.Watch(t.Context(), "/a", true)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if _, err := w.Next(t.Context()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%v", err)
		}
		<-done
	})
	t.Run("silence", func(t *testing.T) {
		t.Parallel()
		l := newLiar(t)
		c := l.connect()
		done := l.answers(true, opened)
		w, err := c.Watch(t.Context(), "/a", true)
		if err != nil {
			t.Fatal(err)
		}
		<-done
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("enough"))
		defer cancel()
		if _, err := w.Next(ctx); err == nil {
			t.Error("something was told")
		}
		if _, err := c.ReadFile(ctx, "/a", 0, -1, io.Discard); !fault.Is(err, fault.Unavailable) {
			t.Errorf("read: %v", err)
		}
		if _, err := c.WriteFile(ctx, "/a", 0, bytes.NewReader(make([]byte, 1<<20))); !fault.Is(err, fault.Unavailable) {
			t.Errorf("write: %v", err)
		}
		if _, err := c.Dial(ctx, 80); !fault.Is(err, fault.Unavailable) {
			t.Errorf("dial: %v", err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := w.Next(t.Context())
			ended <- err
		}()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, io.EOF) {
			t.Errorf("a call that waited: %v", err)
		}
	})
}
