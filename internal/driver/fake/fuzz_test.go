package fake

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// FuzzShell does any script in a sandbox: it must end by itself or by a kill,
// and never panic.
func FuzzShell(f *testing.F) {
	for _, seed := range []string{
		"echo a; echo b", "true && false || exit 3", "A=1; echo \"$A ${A} $?\" 'x' > f; cat f >&2", "echo a | b",
		"sleep 1 & wait", "echo $(x)", "\\\n", "\"", "&", ";;", "> f", "2>&1", "<f cat", "A=$A$A;A=$A$A", "sh -c 'sh -c \"echo x\"'",
		"ln -s / a; cd a; rm -rf a; mkdir ..", "head -c 99999999 /dev/zero > f", "kill -9 $$", "[ a = a ]", "test",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsRune(text, 0) {
			return
		}
		d, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close() //nolint:errcheck // memory only
		b, err := d.Create(t.Context(), sandbox.Spec{ID: "fuzz", Limits: sandbox.Limits{Disk: 1 << 20, Processes: 50}},
			func(sandbox.Handle) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		p, err := b.Exec(t.Context(), sandbox.ExecSpec{ID: "x", Command: []string{"sh", "-c", text}})
		if err != nil {
			t.Fatal(err)
		}
		bounded, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("long enough"))
		defer cancel()
		if _, err := p.Wait(bounded); err != nil {
			if err := p.Signal(t.Context(), sigKill, true); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzUnpack takes any bytes as a tar stream: nothing may panic, go over the
// limit, or stand outside the folder.
func FuzzUnpack(f *testing.F) {
	var seed bytes.Buffer
	w := tar.NewWriter(&seed)
	for _, h := range []tar.Header{
		{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "/tmp"},
		{Name: "d/f", Typeflag: tar.TypeReg, Size: 3},
		{Name: "../x", Typeflag: tar.TypeReg},
	} {
		if err := w.WriteHeader(&h); err != nil {
			f.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, "abc"); err != nil {
				f.Fatal(err)
			}
		}
	}
	f.Add(seed.Bytes())
	f.Add([]byte("no tar"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tree := newTree(1 << 16)
		_ = tree.unpack("/workspace/in", bytes.NewReader(data)) //nolint:errcheck // any error will do
		total := int64(0)
		for _, n := range tree.nodes {
			total += int64(len(n.data))
		}
		if total != tree.bytes || total > tree.limit {
			t.Errorf("%d bytes are held, %d were counted, %d allowed", total, tree.bytes, tree.limit)
		}
		if err := tree.pack("/", io.Discard); err != nil {
			t.Errorf("pack what was unpacked: %v", err)
		}
	})
}

// FuzzJournal plays any bytes as a journal.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"spec":{"id":"a","limits":{}}}
{"ready":true}
{"put":{"dir":"/workspace","tar":""}}
{"exec":{"spec":{"id":"x","command":["sh","-c","cat; echo a > f; sleep 5 & exit 2"],"stdin":true},"started":"2026-01-02T03:04:05Z"}}
{"input":{"id":"x","data":"aGk=","close":true}}
{"exit":{"id":"x","exit":{"code":2},"steps":9,"stdout":2}}
`))
	f.Add([]byte("{}\n{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, whole, err := readJournal(bytes.NewReader(data))
		if whole > int64(len(data)) {
			t.Fatalf("%d whole bytes of %d", whole, len(data))
		}
		if err != nil {
			return
		}
		b, _, err := replay(sandbox.Handle{Version: handleVersion, Driver: driverName, ID: "a"}, entries)
		if err != nil {
			return
		}
		if err := b.destroy(); err != nil {
			t.Error(err)
		}
	})
}
