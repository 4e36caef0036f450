package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/internal/cli"
	"github.com/aurea-dev/aurea/internal/governor"
	papers "github.com/aurea-dev/aurea/internal/manifest"
)

// secretFile writes a file that the manager reads, and nobody else.
func secretFile(t *testing.T, folder, text string) string {
	t.Helper()
	return namedSecret(t, folder, "manifest.secret", text)
}

func namedSecret(t *testing.T, folder, name, text string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	who, err := unprivileged()
	if err != nil {
		t.Fatal(err)
	}
	if who != nil {
		if err := os.Chown(path, int(who.uid), int(who.gid)); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestManifestsUnderASharedSecret issues, checks and uses papers that are signed
// by HMAC-SHA256, over HTTP.
func TestManifestsUnderASharedSecret(t *testing.T) {
	t.Parallel()
	const shared, older = "correct horse battery", "an older secret"
	data := dataFolder(t)
	_, api, _ := up(t, data, "AUREA_MANIFEST_SECRET_FILE="+secretFile(t, data, shared+"\n"+older+"\n"))
	fleet := api + "/api/v1/fleet"
	secret, err := papers.NewSecret(shared)
	if err != nil {
		t.Fatal(err)
	}
	before, err := papers.NewSecret(older)
	if err != nil {
		t.Fatal(err)
	}
	issue := func() (m papers.Manifest) {
		t.Helper()
		if err := json.Unmarshal([]byte(askPlain(t, http.MethodPost, fleet+"/manifests", `{"state_snapshot":{"b":"<é>","a":[1,2.50]}}`)), &m); err != nil {
			t.Fatal(err)
		}
		if m.State, err = papers.CanonicalState(m.State); err != nil {
			t.Fatal(err)
		}
		return m
	}
	register := func(m papers.Manifest) string {
		t.Helper()
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return askPlain(t, http.MethodPost, fleet+"/workers", string(text))
	}
	m := issue()
	if len(m.Signature) != 64 || !secret.Verify(&m) || before.Verify(&m) {
		t.Fatalf("a paper was issued as %+v, whose signature is not by the first secret", m)
	}
	for what, change := range map[string]func(m *papers.Manifest){
		"more processors":                    func(m *papers.Manifest) { m.Resources.CPULimit *= 2 },
		"more memory":                        func(m *papers.Manifest) { m.Resources.MemoryLimitMB++ },
		"another state":                      func(m *papers.Manifest) { m.State = json.RawMessage(`{"a":1}`) },
		"another depth":                      func(m *papers.Manifest) { m.Depth = 1 },
		"another signature":                  func(m *papers.Manifest) { m.Signature = strings.Repeat("0", 64) },
		"in capitals":                        func(m *papers.Manifest) { m.Signature = strings.ToUpper(m.Signature) + "A" },
		"none":                               func(m *papers.Manifest) { m.Signature = "" },
		"by another good secret":             func(m *papers.Manifest) { m.Signature = before.Sign(m) },
		"altered and signed anew":            func(m *papers.Manifest) { m.Resources.CPULimit *= 2; m.Signature = secret.Sign(m) },
		"never issued, with the good secret": func(m *papers.Manifest) { m.WorkerID = "0badcafe"; m.Signature = secret.Sign(m) },
	} {
		forged := m
		change(&forged)
		if got := register(forged); !strings.Contains(got, governor.RejectSignature) {
			t.Errorf("%s: %s", what, got)
		}
	}
	if got := register(m); !strings.Contains(got, `"status":"running"`) || !strings.Contains(got, `"signature_valid":true`) {
		t.Fatalf("the good paper: %s", got)
	}
	if got := register(m); !strings.Contains(got, governor.RejectReplay) {
		t.Errorf("the paper again: %s", got)
	}
	if got := askPlain(t, http.MethodDelete, fleet+"/workers/"+m.WorkerID+"?reason=done", ""); !strings.Contains(got, `"killed":true`) {
		t.Errorf("the kill: %s", got)
	}
	if got := askPlain(t, http.MethodGet, api+"/api/v1/audit?action="+governor.RejectSignature+"&target="+m.WorkerID, ""); !strings.Contains(got, `"severity":"critical"`) {
		t.Errorf("the audit has %s", got)
	}
}

// TestBadManifestSecretsAreRefusedAtStart starts managers with secrets that
// anybody could guess, or none.
func TestBadManifestSecretsAreRefusedAtStart(t *testing.T) {
	t.Parallel()
	for i, text := range []string{"", "\n", "seven77\n", "        \n", "\t\t\t\t\t\t\t\t\t\n", "long enough to be good\n\nthe line between is none\n", "long enough to be good\nshort\n"} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			data := dataFolder(t)
			sock, _ := socket(t)
			env := []string{"AUREA_LISTEN_FD=3", "AUREA_DATA=" + filepath.Join(data, "d"), "AUREA_MANIFEST_SECRET_FILE=" + secretFile(t, data, text)}
			p := aurea(t, env, sock, "manager")
			if code := p.exit(t); code != cli.ExitInvalid {
				t.Errorf("it ends with %d", code)
			}
			if said := p.said(); !strings.Contains(said, "at least 8 characters") || strings.Contains(said, "seven77") || strings.Contains(said, "long enough") {
				t.Errorf("it says %s", said)
			}
		})
	}
	t.Run("a file that is not there", func(t *testing.T) {
		t.Parallel()
		data := dataFolder(t)
		sock, _ := socket(t)
		p := aurea(t, []string{"AUREA_LISTEN_FD=3", "AUREA_DATA=" + filepath.Join(data, "d"), "AUREA_MANIFEST_SECRET_FILE=" + filepath.Join(data, "none")}, sock, "manager")
		if code := p.exit(t); code == 0 {
			t.Error("it starts")
		}
	})
}
