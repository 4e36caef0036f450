package attacktest

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of results into SECURITY.md")

const (
	tableBegin = "<!-- attacks -->\n"
	tableEnd   = "<!-- end of attacks -->\n"
)

// checkTable compares the results with the table in SECURITY.md, or writes it.
// What could not be run here proves nothing against the table.
func checkTable(t *testing.T, results map[string]map[string]string) {
	t.Helper()
	path := filepath.Join(root, "SECURITY.md")
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(body), tableBegin)
	have, tail, ok2 := strings.Cut(rest, tableEnd)
	if !ok1 || !ok2 {
		t.Fatal("SECURITY.md has lost the marks of the table of attacks")
	}
	if *update {
		want := table(t, results, cells(have))
		if err := os.WriteFile(path, []byte(head+tableBegin+want+tableEnd+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	recorded := cells(have)
	for _, a := range manifest(t) {
		row := fmt.Sprintf("| %s | %s | %s |", a.Group, a.Name, a.What)
		if !strings.Contains(have, row) {
			t.Errorf("the table in SECURITY.md does not have %q; write it with -update", a.Name)
		}
		for driver, found := range results {
			got, said := found[a.Name], recorded[driver][a.Name]
			if got != "" && got != said && !strings.HasPrefix(got, "not run") {
				t.Errorf("%s on %s: the table in SECURITY.md says %q, this run %q", a.Name, driver, said, got)
			}
		}
	}
}

// TestTableIsReadBack holds cells to table.
func TestTableIsReadBack(t *testing.T) {
	t.Parallel()
	results := map[string]map[string]string{"gvisor": {}, "docker": {}}
	for i, a := range manifest(t) {
		results["gvisor"][a.Name], results["docker"][a.Name] = "contained", fmt.Sprintf("**not contained**: %d", i)
	}
	back := cells(table(t, results, nil))
	for driver, want := range results {
		for name, cell := range want {
			if back[driver][name] != cell {
				t.Errorf("%s on %s: %q, want %q", name, driver, back[driver][name], cell)
			}
		}
	}
}

// cells reads a table back: by driver and attack.
func cells(text string) map[string]map[string]string {
	have := map[string]map[string]string{}
	var drivers []string
	for line := range strings.Lines(text) {
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(row) < 4 {
			continue
		}
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		if drivers == nil {
			drivers = row[3:]
			for _, d := range drivers {
				have[d] = map[string]string{}
			}
			continue
		}
		for i, d := range drivers[:min(len(drivers), len(row)-3)] {
			have[d][row[1]] = row[3+i]
		}
	}
	return have
}

// table writes the results. What did not run this time stays as it was.
func table(t *testing.T, results, before map[string]map[string]string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| | attack | what it tries |")
	for _, f := range factories() {
		b.WriteString(" " + f.name + " |")
	}
	b.WriteString("\n|---|---|---|" + strings.Repeat("---|", len(factories())) + "\n")
	for _, a := range manifest(t) {
		fmt.Fprintf(&b, "| %s | %s | %s |", a.Group, a.Name, a.What)
		for _, f := range factories() {
			result := cmp.Or(results[f.name][a.Name], before[f.name][a.Name], "not run")
			b.WriteString(" " + result + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}
