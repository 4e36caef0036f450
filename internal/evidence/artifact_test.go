package evidence

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
)

func texts(all map[string]run.Artifact) map[string]string {
	out := map[string]string{}
	for name, a := range all {
		out[name] = string(a.Data)
	}
	return out
}

func TestArtifactsOfAHostileStream(t *testing.T) {
	t.Parallel()
	data := stream(t,
		special("./", tar.TypeDir), regular("report.txt", "fine"), special("sub/", tar.TypeDir), regular("sub/deep/x", "\x00\xff"), regular("empty", ""),
		regular("/etc/passwd", "bad"), regular("../up", "bad"), regular("a/../../up", "bad"), regular("..", "bad"), regular(".", "bad"),
		symlink("shadow", "/etc/shadow"), regular("report.txt", "again"), regular("./report.txt", "again"),
		special("hard", tar.TypeLink), special("fifo", tar.TypeFifo), special("null", tar.TypeChar), special("disk", tar.TypeBlock),
		regular(`c:\windows\x`, "bad"), regular("new\nline", "bad"), regular("not\xffutf8", "bad"), regular("gnp.\u202etxt", "bad"),
		regular(strings.Repeat("n", 300), "bad"), regular("café", "names may have accents"),
	)
	got, skipped, err := CollectArtifacts(t.Context(), bytes.NewReader(data), DefaultArtifactBounds())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{
		"report.txt": "fine", "sub/deep/x": "\x00\xff", "empty": "", "café": "names may have accents",
	}, texts(got)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{
		"/etc/passwd: an absolute path", "../up: a path that leaves the workspace", "a/../../up: a path that leaves the workspace",
		"..: a path that leaves the workspace", ".: not a name",
		"shadow: a symbolic link", "report.txt: a second entry of this name", "./report.txt: a second entry of this name",
		"hard: a hard link", "fifo: a FIFO", "null: a device", "disk: a device",
		`"c:\\windows\\x": the name has characters that are not taken`, `"new\nline": the name has characters that are not taken`,
		`"not\xffutf8": the name is not UTF-8`, `"gnp.\u202etxt": the name has characters that are not taken`,
		strings.Repeat("n", 200) + "...: the name is too long",
	}, skipped); d != "" {
		t.Error(d)
	}
	sum := sha256.Sum256([]byte("fine"))
	if got["report.txt"].SHA256 != hex.EncodeToString(sum[:]) {
		t.Error("the digest is not that of the bytes")
	}
}

func TestArtifactsStayInTheirBounds(t *testing.T) {
	t.Parallel()
	bounds := ArtifactBounds{Count: 2, FileBytes: 10, Bytes: 15, Entries: 6, Stream: 1 << 20}
	many := make([]item, 20)
	for i := range many {
		many[i] = regular(fmt.Sprintf("f%02d", i), "x")
	}
	for name, tc := range map[string]struct {
		items   []item
		taken   []string
		skipped []string
	}{
		"one too large": {
			[]item{regular("a", strings.Repeat("x", 11)), regular("b", strings.Repeat("x", 10))},
			[]string{"b"},
			[]string{"a: larger than 10 bytes"},
		},
		"too large together": {
			[]item{regular("a", strings.Repeat("x", 9)), regular("b", strings.Repeat("x", 9)), regular("c", "xxx")},
			[]string{"a", "c"},
			[]string{"b: the artifacts are larger than 15 bytes together"},
		},
		"too many": {
			many[:4],
			[]string{"f00", "f01"},
			[]string{"2 more: at most 2 artifacts are taken"},
		},
		"far too many": {
			many,
			[]string{"f00", "f01"},
			[]string{
				"4 more: at most 2 artifacts are taken",
				"the rest: the folder holds more than the 6 entries that are looked at",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, skipped, err := CollectArtifacts(t.Context(), bytes.NewReader(stream(t, tc.items...)), bounds)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.taken, slices.Sorted(maps.Keys(got))); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(tc.skipped, skipped); d != "" {
				t.Error(d)
			}
		})
	}
}

// An endless sends a tar entry that claims any size, and goes on for ever.
type endless struct {
	head *bytes.Reader
	sent int64
}

func (e *endless) Read(p []byte) (int, error) {
	n, err := e.head.Read(p)
	if errors.Is(err, io.EOF) {
		clear(p)
		n, err = len(p), nil
	}
	e.sent += int64(n)
	return n, err
}

func TestArtifactsOfASparseGiant(t *testing.T) {
	t.Parallel()
	head := stream(t, regular("before", "kept"))
	var claim bytes.Buffer
	if err := tar.NewWriter(&claim).WriteHeader(&tar.Header{Name: "giant", Typeflag: tar.TypeReg, Size: 1 << 40, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	r := &endless{head: bytes.NewReader(slices.Concat(head[:1024], claim.Bytes()))}
	bounds := DefaultArtifactBounds()
	got, skipped, err := CollectArtifacts(t.Context(), r, bounds)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"before": "kept"}, texts(got)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{
		"giant: larger than 1048576 bytes", "the rest: the folder holds more than the 67108864 bytes that are looked at",
	}, skipped); d != "" {
		t.Error(d)
	}
	if r.sent > bounds.Stream+1<<20 {
		t.Errorf("read %d bytes of it", r.sent)
	}
}

func TestArtifactsOfABrokenStream(t *testing.T) {
	t.Parallel()
	whole := stream(t, regular("a", "kept"), regular("b", strings.Repeat("x", 600)))
	got, _, err := CollectArtifacts(t.Context(), bytes.NewReader(whole[:1600]), DefaultArtifactBounds())
	if fault.KindOf(err) != fault.Invalid {
		t.Errorf("a stream that is cut off gave %v", err)
	}
	if d := cmp.Diff(map[string]string{"a": "kept"}, texts(got)); d != "" {
		t.Error(d)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the run was cancelled")
	cancel(why)
	if _, _, err := CollectArtifacts(ctx, bytes.NewReader(whole), DefaultArtifactBounds()); !errors.Is(err, why) {
		t.Errorf("a cancelled collection gave %v", err)
	}
}

func FuzzArtifacts(f *testing.F) {
	f.Add(stream(f, regular("a", "x"), symlink("b", ".."), regular("b/c", "y"), special("d", tar.TypeBlock)))
	f.Add(stream(f, regular("../a", "x"), regular("/etc/passwd", "x"), special("a/./b//c", tar.TypeDir)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		bounds := ArtifactBounds{Count: 3, FileBytes: 1 << 10, Bytes: 2 << 10, Entries: 20, Stream: 1 << 16}
		got, skipped, err := CollectArtifacts(t.Context(), bytes.NewReader(data), bounds)
		if err != nil && fault.KindOf(err) == fault.Internal {
			t.Errorf("hostile bytes gave an internal error: %v", err)
		}
		total := 0
		for name, a := range got {
			total += len(a.Data)
			if again, why := artifactName(name); again != name || why != "" {
				t.Errorf("%q is no name: %s", name, why)
			}
			if len(a.Data) > 1<<10 {
				t.Errorf("%q has %d bytes", name, len(a.Data))
			}
		}
		if len(got) > bounds.Count || total > int(bounds.Bytes) || len(skipped) > 103 {
			t.Errorf("%d artifacts of %d bytes, %d skipped", len(got), total, len(skipped))
		}
	})
}
