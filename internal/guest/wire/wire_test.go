package wire

import (
	"bytes"
	"errors"
	"io"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestOpenComesBackAsItWent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 20, -1)
		var o Open
		switch o.Kind = Kind(rapid.IntRange(1, int(lastKind)).Draw(t, "kind")); o.Kind {
		case KindExec:
			o.ID = rapid.StringN(0, 16, 64).Draw(t, "id")
			o.Args = rapid.SliceOfN(text, 0, 5).Draw(t, "args")
			o.Env = rapid.SliceOfN(text, 0, 5).Draw(t, "env")
			o.Dir, o.User = text.Draw(t, "dir"), text.Draw(t, "user")
			o.TTY, o.Stdin = rapid.Bool().Draw(t, "tty"), rapid.Bool().Draw(t, "stdin")
			o.Cols, o.Rows = rapid.Uint16().Draw(t, "cols"), rapid.Uint16().Draw(t, "rows")
		case KindAttach:
			o.ID = rapid.StringN(0, 16, 64).Draw(t, "id")
			o.Stdout, o.Stderr = rapid.Int64Range(0, 1<<56).Draw(t, "out"), rapid.Int64Range(0, 1<<56).Draw(t, "err")
		case KindPut, KindLock, KindGet:
			o.Path = text.Draw(t, "path")
		case KindPutFor, KindLockFor, KindGetAfter:
			o.ID, o.Path = rapid.StringN(0, 16, 64).Draw(t, "id"), text.Draw(t, "path")
		case KindDisk:
		case KindDial:
			o.Port = rapid.Uint16().Draw(t, "port")
		default:
			o.Path = text.Draw(t, "path")
			o.File = File{
				To: text.Draw(t, "to"), Mode: rapid.Uint32().Draw(t, "mode"),
				Depth: rapid.Uint16().Draw(t, "depth"), Most: rapid.Uint32().Draw(t, "most"),
				Offset: rapid.Int64Range(0, 1<<56).Draw(t, "offset"), Length: rapid.Int64Range(-1, 1<<56-1).Draw(t, "length"),
				Recursive: rapid.Bool().Draw(t, "recursive"),
			}
		}
		back, err := DecodeOpen(o.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(o, back); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestAnswersComeBackAsTheyWent(t *testing.T) {
	t.Parallel()
	outcome := Outcome{Status: StatusDenied, Message: "no"}
	opened, err := DecodeOpened(Opened{Outcome: outcome, TTY: true}.Append(nil))
	if err != nil || opened != (Opened{Outcome: outcome, TTY: true}) {
		t.Errorf("opened %+v, %v", opened, err)
	}
	for _, want := range []Exit{
		{Code: 0, Ended: time.Unix(1, 2)},
		{Code: 255, Ended: time.Unix(3, 4), Outcome: outcome},
		{Code: -1, Signal: 9, Ended: time.Unix(5, 6)},
	} {
		got, err := DecodeExit(want.Append(nil))
		if err != nil || !got.Ended.Equal(want.Ended) || got.Code != want.Code || got.Signal != want.Signal || got.Outcome != want.Outcome {
			t.Errorf("exit %+v, %v, want %+v", got, err, want)
		}
	}
	done, err := DecodeDone(Done{Tag: 7, Outcome: outcome}.Append(nil))
	if err != nil || done != (Done{Tag: 7, Outcome: outcome}) {
		t.Errorf("done %+v, %v", done, err)
	}
	out, err := DecodeOutput(Output{Stream: Stderr, Offset: 5, Data: []byte("x")}.Append(nil))
	if err != nil || out.Stream != Stderr || out.Offset != 5 || string(out.Data) != "x" {
		t.Errorf("output %+v, %v", out, err)
	}
	control, err := DecodeControl(Control{Tag: 1, Cols: 2, Rows: 3, Signal: 4, Tree: true}.Append(nil))
	if err != nil || control != (Control{Tag: 1, Cols: 2, Rows: 3, Signal: 4, Tree: true}) {
		t.Errorf("control %+v, %v", control, err)
	}
	ack, err := DecodeAck(Ack{Stdout: 1, Stderr: 2}.Append(nil))
	if err != nil || ack != (Ack{Stdout: 1, Stderr: 2}) {
		t.Errorf("ack %+v, %v", ack, err)
	}
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	long := Done{Outcome: Outcome{}}.Append(nil)
	for name, decode := range map[string]func() error{
		"short header":    func() error { _, err := DecodeHeader(make([]byte, 3), 10); return err },
		"other version":   func() error { _, err := DecodeHeader([]byte{9, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 10); return err },
		"reserved byte":   func() error { _, err := DecodeHeader([]byte{1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}, 10); return err },
		"unknown flag":    func() error { _, err := DecodeHeader([]byte{1, 1, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 10); return err },
		"too long":        func() error { _, err := DecodeHeader([]byte{1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11}, 10); return err },
		"unknown kind":    func() error { _, err := DecodeOpen([]byte{77}); return err },
		"empty open":      func() error { _, err := DecodeOpen(nil); return err },
		"count that lies": func() error { _, err := DecodeOpen([]byte{1, 0, 0, 0, 0, 255, 255, 255, 255}); return err },
		"something left":  func() error { _, err := DecodeDone(append(long, 0)); return err },
		"unknown status":  func() error { _, err := DecodeDone([]byte{0, 0, 0, 0, 99, 0, 0, 0, 0}); return err },
		"exit code 256":   func() error { _, err := DecodeExit(Exit{Code: 256}.Append(nil)); return err },
		"signal 65":       func() error { _, err := DecodeExit(Exit{Signal: 65}.Append(nil)); return err },
		"stream 3":        func() error { _, err := DecodeOutput(Output{Stream: 3}.Append(nil)); return err },
		"huge offset":     func() error { _, err := DecodeAck(bytes.Repeat([]byte{255}, 16)); return err },
		"short nonce":     func() error { _, err := DecodeNonce([]byte{1}); return err },
		"a path upwards":  func() error { _, err := DecodeEntry(Entry{Name: "a/../b"}.Append(nil)); return err },
		"an absolute one": func() error { _, err := DecodeEntry(Entry{Name: "/a"}.Append(nil)); return err },
		"a folder's name": func() error { _, err := DecodeEntry(Entry{Name: "a/"}.Append(nil)); return err },
		"a NUL byte":      func() error { _, err := DecodeEntry(Entry{Name: "a\x00"}.Append(nil)); return err },
		"a file of sorts": func() error { _, err := DecodeEntry(Entry{Type: 9}.Append(nil)); return err },
		"a setuid bit":    func() error { _, err := DecodeEntry(Entry{Mode: 0o4755}.Append(nil)); return err },
		"no end of list":  func() error { _, _, err := DecodeList(AppendListed(nil, Entry{Name: "a"}), 9); return err },
		"out of order":    func() error { _, _, err := DecodeList(listOf("b", "a"), 9); return err },
		"the same twice":  func() error { _, _, err := DecodeList(listOf("a", "a"), 9); return err },
		"too many listed": func() error { _, _, err := DecodeList(listOf("a", "b"), 1); return err },
		"a huge change":   func() error { _, _, _, err := NextChange([]byte{255, 255, 255, 255}); return err },
		"unknown change":  func() error { _, _, _, err := NextChange(Change{Kind: 9}.Append(nil)); return err },
		"changed upwards": func() error { _, _, _, err := NextChange(Change{Kind: 1, Name: ".."}.Append(nil)); return err },
	} {
		if err := decode(); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func listOf(names ...string) []byte {
	var b []byte
	for _, name := range names {
		b = AppendListed(b, Entry{Name: name, Type: FileRegular})
	}
	return AppendListEnd(b, false)
}

func TestFilesComeBackAsTheyWent(t *testing.T) {
	t.Parallel()
	e := Entry{Name: "a/b c", Type: FileLink, Mode: 0o751, Size: 7, ModTime: time.Unix(3, 4), Target: "../x"}
	if back, err := DecodeEntry(e.Append(nil)); err != nil || !back.ModTime.Equal(e.ModTime) || back.Target != e.Target || back.Name != e.Name || back.Mode != e.Mode {
		t.Errorf("%+v, %v", back, err)
	}
	list, more, err := DecodeList(AppendListEnd(AppendListed(nil, e), true), 1)
	if err != nil || !more || len(list) != 1 || list[0].Name != e.Name {
		t.Errorf("%+v %v %v", list, more, err)
	}
	first, second := Change{Kind: ChangeRenamed, Type: FileFolder, Name: "to", From: "from"}, Change{Kind: ChangeOverflow}
	b := second.Append(first.Append(nil))
	for i := range b { // a change comes only when it is whole
		_, rest, whole, err := NextChange(b[:i])
		if err != nil || whole != (i >= len(first.Append(nil))) || !whole && len(rest) != i {
			t.Fatalf("%d bytes: %v, %v", i, whole, err)
		}
	}
	one, rest, _, err := NextChange(b)
	if err != nil || one != first {
		t.Errorf("%+v, %v", one, err)
	}
	if two, rest, _, err := NextChange(rest); err != nil || two != second || len(rest) != 0 {
		t.Errorf("%+v, %v", two, err)
	}
	if k, err := DecodeKnows(Knows{Tag: 5, Kind: KindDial}.Append(nil)); err != nil || k != (Knows{Tag: 5, Kind: KindDial}) {
		t.Errorf("%+v, %v", k, err)
	}
}

func TestPlainIsOneBoundedLine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := Plain(string(rapid.SliceOf(rapid.Byte()).Draw(t, "text")))
		if len(s) > MaxMessage || strings.ContainsAny(s, "\n\r\x1b\x00") {
			t.Fatalf("%q", s)
		}
	})
}

func TestReaderStopsAtTheEnd(t *testing.T) {
	t.Parallel()
	whole := AppendFrame(nil, TypeDone, 0, 3, []byte("abc"))
	r := NewReader(bytes.NewReader(append(whole, whole[:5]...)), 10)
	h, payload, err := r.Next()
	if err != nil || h != (Header{Version: Version, Type: TypeDone, Channel: 3, Length: 3}) || string(payload) != "abc" {
		t.Fatalf("%+v %q %v", h, payload, err)
	}
	if _, _, err := r.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a frame: %v", err)
	}
}

// A reader of any version returns frames that it does not understand, but none
// that is too long.
func TestAnyVersion(t *testing.T) {
	t.Parallel()
	other := func(payload string) []byte {
		frame := AppendFrame(nil, TypeHello, 0x80, 3, []byte(payload))
		frame[0], frame[3] = Version+1, 1
		return frame
	}
	if _, _, err := NewReader(bytes.NewReader(other("abc")), 10).Next(); !errors.Is(err, ErrMalformed) {
		t.Errorf("of one version: %v", err)
	}
	r := NewReader(bytes.NewReader(append(other("abc"), other("far too long")...)), 10).AnyVersion()
	h, payload, err := r.Next()
	if err != nil || h.Version != Version+1 || h.Type != TypeHello || string(payload) != "abc" {
		t.Errorf("%+v %q %v", h, payload, err)
	}
	if _, _, err := r.Next(); !errors.Is(err, ErrMalformed) {
		t.Errorf("too long: %v", err)
	}
	own := AppendFrame(nil, TypeHello, 0x80, 0, nil)
	if _, _, err := NewReader(bytes.NewReader(own), 10).AnyVersion().Next(); !errors.Is(err, ErrMalformed) {
		t.Errorf("its own version with an unknown flag: %v", err)
	}
}

// FuzzDecodeFrames is a stream from a guest: no input may panic or be taken
// for a payload above the bound.
func FuzzDecodeFrames(f *testing.F) {
	f.Add(AppendFrame(nil, TypeWelcome, 0, 0, make([]byte, 16)))
	f.Add(AppendFrame(nil, TypeOpened, 0, 1, Opened{}.Append(nil)))
	f.Add(AppendFrame(nil, TypeOutput, FlagEnd, 1, Output{Stream: Stdout, Data: []byte("x")}.Append(nil)))
	f.Add(AppendFrame(nil, TypeExit, 0, 1, Exit{Code: 1, Signal: 2, Ended: time.Unix(1, 1)}.Append(nil)))
	f.Add(AppendFrame(nil, TypeDone, 0, 1, Done{Tag: 1, Outcome: Outcome{Status: 1, Message: "m"}}.Append(nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b), MaxPayload)
		for {
			h, payload, err := r.Next()
			if err != nil {
				return
			}
			if len(payload) > MaxPayload {
				t.Fatalf("payload of %d bytes", len(payload))
			}
			switch h.Type {
			case TypeWelcome:
				_, _ = DecodeNonce(payload)
			case TypeOpened:
				_, _ = DecodeOpened(payload)
			case TypeOutput:
				if o, err := DecodeOutput(payload); err == nil && (o.Offset < 0 || o.Stream < 1 || o.Stream > 2) {
					t.Fatalf("%+v", o)
				}
			case TypeExit:
				if e, err := DecodeExit(payload); err == nil && (e.Code < -1 || e.Code > 255 || e.Signal > 64) {
					t.Fatalf("%+v", e)
				}
			case TypeDone:
				if d, err := DecodeDone(payload); err == nil && len(d.Message) > MaxMessage {
					t.Fatalf("%+v", d)
				}
			}
		}
	})
}

// FuzzDecodeFiles is what a guest says of files: no name may lead out of what
// was asked for, and nothing be more than was.
func FuzzDecodeFiles(f *testing.F) {
	f.Add(Entry{Name: "a", Type: FileLink, Target: "/x"}.Append(nil))
	f.Add(listOf("a", "a/b", "c"))
	f.Add(Change{Kind: ChangeRenamed, Name: "a", From: "b"}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		check := func(names ...string) {
			for _, name := range names {
				if len(name) > maxPath || path.Join("/root", name) != "/root" && path.Join("/root", name) != "/root/"+name {
					t.Fatalf("%q", name)
				}
			}
		}
		if e, err := DecodeEntry(b); err == nil {
			check(e.Name)
			if e.Mode > 0o777 || e.Size < 0 || e.Type > lastFileType || len(e.Target) > maxPath {
				t.Fatalf("%+v", e)
			}
		}
		if list, _, err := DecodeList(b, 3); err == nil {
			if len(list) > 3 {
				t.Fatalf("%d entries", len(list))
			}
			for _, e := range list {
				check(e.Name)
			}
		}
		for rest := b; ; {
			c, behind, whole, err := NextChange(rest)
			if err != nil || !whole {
				return
			}
			check(c.Name, c.From)
			if len(behind) >= len(rest) {
				t.Fatal("no end")
			}
			rest = behind
		}
	})
}

// FuzzDecodeRequests is a worker's payloads, as the guest decodes them. What
// decodes must encode to the same again.
func FuzzDecodeRequests(f *testing.F) {
	f.Add(Open{Kind: KindExec, ID: "a", Args: []string{"x"}, Env: []string{"A=b"}}.Encode())
	f.Add(Open{Kind: KindAttach, ID: "a", Stdout: 1}.Encode())
	f.Add(Open{Kind: KindGet, Path: "/a"}.Encode())
	f.Add(Open{Kind: KindMove, Path: "/a", File: File{To: "/b"}}.Encode())
	f.Add(Open{Kind: KindDial, Port: 80}.Encode())
	f.Add(Open{Kind: KindDisk}.Encode())
	f.Add(Control{Tag: 1, Signal: 9, Tree: true}.Append(nil))
	f.Add(Ack{Stdout: 1}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if o, err := DecodeOpen(b); err == nil && !bytes.Equal(o.Encode(), b) {
			t.Fatalf("open %+v", o)
		}
		if k, err := DecodeKnows(b); err == nil && !bytes.Equal(k.Append(nil), b) {
			t.Fatalf("knows %+v", k)
		}
		if c, err := DecodeControl(b); err == nil && !bytes.Equal(c.Append(nil), b) {
			t.Fatalf("control %+v", c)
		}
		if a, err := DecodeAck(b); err == nil && !bytes.Equal(a.Append(nil), b) {
			t.Fatalf("ack %+v", a)
		}
		if in, err := DecodeInput(b); err == nil && !bytes.Equal(in.Append(nil), b) {
			t.Fatalf("input %+v", in)
		}
	})
}
