package attacktest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// attack is one row of attacks/manifest.json; its README explains the fields.
type attack struct {
	Name     string            `json:"name"`
	Group    string            `json:"group"`
	What     string            `json:"what"`
	Files    []string          `json:"files"`
	Command  []string          `json:"command"`
	Verdicts []sandbox.Verdict `json:"verdicts"`
	// VerdictsOn is for drivers on which it ends otherwise.
	VerdictsOn map[string][]sandbox.Verdict `json:"verdicts_on"`
	// Limits are laid over those of every attack.
	Limits    sandbox.Limits    `json:"limits"`
	Needs     []string          `json:"needs"`
	User      string            `json:"user"`
	Env       map[string]string `json:"env"`
	Timeout   string            `json:"timeout"`
	Prepare   string            `json:"prepare"`
	During    []string          `json:"during"`
	Then      []string          `json:"then"`
	Silent    bool              `json:"silent"`    // it prints no STOPPED
	Truncated bool              `json:"truncated"` // its output must be cut
	Fatal     bool              `json:"fatal"`     // its sandbox may have to go with it
	Known     map[string]string `json:"known"`     // by driver: why it is not contained
	Collected int               `json:"collected"` // how many entries come out, or 0 for any number
}

func (a attack) timeout(t *testing.T) time.Duration {
	t.Helper()
	if a.Timeout == "" {
		return 10 * time.Second
	}
	d, err := time.ParseDuration(a.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// verdicts are those with which it may end on a driver.
func (a attack) verdicts(driver string) []sandbox.Verdict {
	if v := a.VerdictsOn[driver]; v != nil {
		return v
	}
	return a.Verdicts
}

// root is the folder of the whole tree.
const root = "../.."

func manifest(t *testing.T) []attack {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(root, "attacks", "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	var all []attack
	if err := decoder.Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestManifest holds the manifest to its README.
func TestManifest(t *testing.T) {
	t.Parallel()
	seen, used := map[string]bool{}, map[string]bool{}
	for _, a := range manifest(t) {
		if a.Name == "" || a.What == "" || seen[a.Name] || len(a.Command) == 0 || len(a.Verdicts) == 0 || !strings.Contains("ABCDE", a.Group[:1]) {
			t.Errorf("%+v is not whole, or its name is taken", a)
		}
		seen[a.Name] = true
		if _, ok := preparations()[a.Prepare]; !ok && a.Prepare != "" {
			t.Errorf("%s is prepared by %q, which nobody knows", a.Name, a.Prepare)
		}
		a.timeout(t)
		for _, need := range a.Needs {
			if !slices.Contains([]string{"memory", "processes", "cpu", "cpu_time", "disk", "open_files", "python3"}, need) {
				t.Errorf("%s needs %q, which nobody knows", a.Name, need)
			}
		}
		for _, f := range a.Files {
			used[f] = true
		}
	}
	scripts, err := os.ReadDir(filepath.Join(root, "attacks", "script"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scripts {
		if !used[s.Name()] {
			t.Errorf("no attack of the manifest uses %s", s.Name())
		}
	}
}
