// Package arch holds the shape of the tree: the import table of
// ARCHITECTURE.md, which a person reads, is what the code obeys and what the
// linter enforces.
package arch_test

import (
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/job"
)

var update = flag.Bool("update", false, "rewrite what is generated from the table")

const module = "github.com/aurea-dev/aurea/"

// row is one line of the table: a package, and what of ours it may import.
type row struct {
	pkg  string
	may  []string
	free bool // may import anything of ours
}

// table reads the import table between its two marks in ARCHITECTURE.md.
func table(t *testing.T) []row {
	t.Helper()
	text := read(t, "ARCHITECTURE.md")
	_, rest, ok1 := strings.Cut(text, "<!-- import table -->")
	body, _, ok2 := strings.Cut(rest, "<!-- end of import table -->")
	if !ok1 || !ok2 {
		t.Fatal("ARCHITECTURE.md has no import table")
	}
	word := regexp.MustCompile("`([^`]+)`")
	var rows []row
	for line := range strings.Lines(body) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.Contains(cells[1], "`") {
			continue
		}
		r := row{pkg: word.FindStringSubmatch(cells[1])[1], free: strings.Contains(cells[3], "anything")}
		for _, m := range word.FindAllStringSubmatch(cells[3], -1) {
			r.may = append(r.may, m[1])
		}
		rows = append(rows, r)
	}
	if len(rows) < 10 {
		t.Fatalf("the import table has only %d rows; was its form changed?", len(rows))
	}
	return rows
}

// TestEveryPackageObeysTheTable fails when a package imports what its row does
// not name, has no row, or when a row or a permission is not used any more.
func TestEveryPackageObeysTheTable(t *testing.T) {
	t.Parallel()
	imports := packages(t)
	rows := table(t)
	known := map[string]row{}
	for _, r := range rows {
		known[r.pkg] = r
		if _, ok := imports[r.pkg]; !ok {
			t.Errorf("the table names %s, which does not exist", r.pkg)
		}
	}
	for pkg, used := range imports {
		r, ok := known[pkg]
		if !ok {
			t.Errorf("%s has no row in the import table of ARCHITECTURE.md", pkg)
			continue
		}
		for _, imp := range used {
			if !r.free && !slices.Contains(r.may, imp) {
				t.Errorf("%s imports %s, which its row does not allow", pkg, imp)
			}
		}
		for _, may := range r.may {
			if !slices.Contains(used, may) {
				t.Errorf("the row of %s allows %s, which it does not import: take it out", pkg, may)
			}
		}
	}
}

// TestNoRowPointsBack fails when a permission points down the table: a package
// may import only what stands above it.
func TestNoRowPointsBack(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range table(t) {
		for _, may := range r.may {
			if !seen[may] {
				t.Errorf("%s may import %s, which stands below it", r.pkg, may)
			}
		}
		seen[r.pkg] = true
	}
}

// TestGeneratedLinterRules holds the depguard rules equal to the table.
func TestGeneratedLinterRules(t *testing.T) {
	t.Parallel()
	const begin, end = "        # begin import table\n", "        # end import table\n"
	have := read(t, ".golangci.yml")
	head, rest, ok1 := strings.Cut(have, begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatal(".golangci.yml has lost its marks")
	}
	want := head + begin + rules(table(t)) + end + tail
	if want == have {
		return
	}
	if !*update {
		t.Fatal("the linter's import rules differ from ARCHITECTURE.md; run make gen")
	}
	if err := os.WriteFile(path(".golangci.yml"), []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// rules writes one depguard rule per package: all of ours is denied but what
// the row allows. Longer prefixes win, so a package inside another is safe.
func rules(rows []row) string {
	var b strings.Builder
	for _, r := range rows {
		if r.free {
			continue
		}
		name := strings.NewReplacer("/", "-").Replace(r.pkg)
		fmt.Fprintf(&b, "        %s:\n          list-mode: lax\n          files: [\"**/%s/*.go\", \"!$test\"]\n", name, r.pkg)
		if len(r.may) > 0 {
			b.WriteString("          allow:\n")
			for _, may := range r.may {
				fmt.Fprintf(&b, "            - %s%s$\n", module, may)
			}
		}
		fmt.Fprintf(&b, "          deny:\n            - pkg: %s\n              desc: the import table in ARCHITECTURE.md does not allow it\n", strings.TrimSuffix(module, "/"))
	}
	return b.String()
}

// packages maps each package of the module to what of ours its code imports,
// tests aside.
func packages(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for pkg, all := range imports(t) {
		found[pkg] = []string{}
		for _, imp := range all {
			if p, ours := strings.CutPrefix(imp, module); ours {
				found[pkg] = append(found[pkg], p)
			}
		}
	}
	return found
}

// imports maps each package of the module to all that its code imports.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	walk(t, ".go", func(file string) {
		pkg := filepath.ToSlash(filepath.Dir(file))
		if strings.HasSuffix(file, "_test.go") || pkg == "." || pkg == "tools" || pkg == "internal/e2e" {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), path(file), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		found[pkg] = slices.Clip(found[pkg])
		for _, imp := range f.Imports {
			if p := strings.Trim(imp.Path.Value, `"`); !slices.Contains(found[pkg], p) {
				found[pkg] = append(found[pkg], p)
			}
		}
	})
	return found
}

// TestNothingUnpacksZip holds what SECURITY.md says of hostile zip files: there
// is no attack on what does not exist. Whoever adds it adds the attack.
func TestNothingUnpacksZip(t *testing.T) {
	t.Parallel()
	all := imports(t)
	if len(all) < 10 {
		t.Fatalf("only %d packages were found", len(all))
	}
	for pkg, list := range all {
		for _, imp := range list {
			if imp == "archive/zip" || strings.HasSuffix(imp, "/zip") {
				t.Errorf("%s imports %s: attack 38 is due, and a row in SECURITY.md", pkg, imp)
			}
		}
	}
}

func path(name string) string { return filepath.Join("..", "..", name) }

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(path(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestGeneratedDiagram holds the drawn job machine equal to its table.
func TestGeneratedDiagram(t *testing.T) {
	t.Parallel()
	const begin, end = "```mermaid\n", "```\n"
	have := read(t, "ARCHITECTURE.md")
	head, rest, ok1 := strings.Cut(have, begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatal("ARCHITECTURE.md has lost its diagram")
	}
	want := head + begin + job.Diagram() + end + tail
	if want == have {
		return
	}
	if !*update {
		t.Fatal("the diagram in ARCHITECTURE.md differs from internal/job/state.go; run make gen")
	}
	if err := os.WriteFile(path("ARCHITECTURE.md"), []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
