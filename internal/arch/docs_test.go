package arch_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// TestLinksLeadSomewhere follows every link of the docs to a file of the tree,
// and to the heading where it names one. Links to other sites are not followed.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^()\s]+)\)`)
	pages := pages(t)
	for page, text := range pages {
		for _, m := range link.FindAllStringSubmatch(prose(text), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			file, heading, _ := strings.Cut(m[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(path(target)); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
				continue
			}
			if heading != "" && !headings(pages[target])[heading] {
				t.Errorf("%s links to %s, and %s has no such heading", page, m[1], target)
			}
		}
	}
}

// TestEveryPageIsLinked fails when a page cannot be found from the README.
func TestEveryPageIsLinked(t *testing.T) {
	t.Parallel()
	pages := pages(t)
	reached := map[string]bool{"README.md": true}
	link := regexp.MustCompile(`\]\(([^()\s#]+)`)
	for next := []string{"README.md"}; len(next) > 0; next = next[1:] {
		for _, m := range link.FindAllStringSubmatch(pages[next[0]], -1) {
			target := filepath.Join(filepath.Dir(next[0]), m[1])
			for page := range pages { // a link to a folder leads to what is in it
				if (page == target || filepath.Dir(page) == target) && !reached[page] {
					reached[page] = true
					next = append(next, page)
				}
			}
		}
	}
	for page := range pages {
		if !reached[page] && strings.HasPrefix(page, "docs"+string(filepath.Separator)) {
			t.Errorf("no link leads from README.md to %s", page)
		}
	}
}

// TestEveryPackageSaysWhatItIs fails on a package without a doc comment.
func TestEveryPackageSaysWhatItIs(t *testing.T) {
	t.Parallel()
	said := map[string]bool{}
	walk(t, ".go", func(file string) {
		pkg := filepath.Dir(file)
		f, err := parser.ParseFile(token.NewFileSet(), path(file), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Error(err)
			return
		}
		said[pkg] = said[pkg] || f.Doc != nil && len(strings.Fields(f.Doc.Text())) > 3
	})
	for pkg, ok := range said {
		if !ok {
			t.Errorf("the package in %s does not say what it is for", pkg)
		}
	}
}

// pages are the texts that people read, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	walk(t, ".md", func(file string) { found[file] = read(t, file) })
	return found
}

// walk does something for every file of the tree with an ending.
func walk(t *testing.T, ending string, do func(file string)) {
	t.Helper()
	root := path(".")
	err := filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && at != root && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(name) != ending {
			return nil
		}
		file, err := filepath.Rel(root, at)
		do(file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// prose is a page without its examples.
func prose(text string) string {
	text = regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(text, "")
	return regexp.MustCompile("`[^`\n]*`").ReplaceAllString(text, "`")
}

// headings are what can be linked to on a page, as forges name them.
func headings(text string) map[string]bool {
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ +(.+)$`).FindAllStringSubmatch(text, -1) {
		names[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])] = true
	}
	return names
}
