package file_test

import (
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/file"
)

func TestPaths(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "a/b.txt", ".hidden", "..a", "a..", "ä", "日本/語", "with space", "-rf", "CON", strings.Repeat("a", 255)} {
		if err := file.CheckPath(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, evil := range []string{
		"", "/", "/etc/passwd", "..", "../x", "a/../../x", "a/..", ".", "./a", "a/.", "a//b", "a/", "a\x00b", "a\nb", "a\x1b[2J", "a\x7f", `a\b`, `..\x`,
		"\xff\xfe", "a\u0308", "\u202egnp.exe", "a\u2028b", strings.Repeat("a", 256), strings.Repeat("a/", 512) + "a", strings.Repeat("a/", 70) + "a",
	} {
		if err := file.CheckPath(evil); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", evil, err)
		}
	}
}

func FuzzCheckPath(f *testing.F) {
	f.Add("a/b")
	f.Add("../x")
	f.Fuzz(func(t *testing.T, p string) {
		if file.CheckPath(p) != nil {
			return
		}
		if path.Clean("/root/"+p) != "/root/"+p || !utf8.ValidString(p) || len(p) > file.MaxPath || strings.ContainsAny(p, "\x00\n\\") {
			t.Errorf("%q passed", p)
		}
	})
}
