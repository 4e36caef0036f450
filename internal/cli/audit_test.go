package cli

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/aurea-dev/aurea/internal/audit"
)

// auditFiles writes an export of ten records, a checkpoint of it and the public
// key that checks it.
func auditFiles(t *testing.T) (export, checkpoint, key string) {
	t.Helper()
	secret, public, err1 := note.GenerateKey(rand.Reader, "aurea.audit/test")
	signer, err2 := note.NewSigner(secret)
	var out bytes.Buffer
	var tree audit.Tree
	for i := range int64(10) {
		r := audit.Record{Category: audit.Access, At: time.Unix(i, 0), Action: "job.cancel", Target: fmt.Sprint("target-", i+1)}
		if err := r.Seal(i+1, time.Time{}); err != nil {
			t.Fatal(err)
		}
		tree.Add(r.Leaf())
		if err := audit.WriteEntry(&out, audit.Entry{Seq: r.Seq, Leaf: r.Leaf(), Record: &r}); err != nil {
			t.Fatal(err)
		}
	}
	text, err3 := audit.Checkpoint{Origin: signer.Name(), Size: tree.Size, Root: tree.Root()}.Sign(signer)
	dir := t.TempDir()
	export, checkpoint, key = filepath.Join(dir, "export"), filepath.Join(dir, "checkpoint"), filepath.Join(dir, "key")
	err4 := os.WriteFile(export, out.Bytes(), 0o600)
	err5 := os.WriteFile(checkpoint, []byte(text), 0o600)
	err6 := os.WriteFile(key, []byte(public+"\n"), 0o600)
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		t.Fatal(err)
	}
	return export, checkpoint, key
}

func TestAuditVerifyWithoutAServer(t *testing.T) {
	t.Parallel()
	export, checkpoint, key := auditFiles(t)
	whole, err := os.ReadFile(export)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(whole), "\n")
	verify := func(text string, args ...string) (int, string) {
		var out bytes.Buffer
		code := Run(t.Context(), Program{}, append([]string{"audit", "verify", "-"}, args...), Streams{In: strings.NewReader(text), Out: &out, Err: &out}, nil)
		return code, out.String()
	}
	for _, test := range []struct {
		name, text string
		args       []string
		code       int
		says       string
	}{
		{"whole", string(whole), []string{"--checkpoint", checkpoint, "--key", key}, ExitOK, "verified 10 records"},
		{"whole, by the checkpoint alone", string(whole), []string{"--checkpoint", checkpoint}, ExitOK, "verified 10 records"},
		{"whole, by the key alone", string(whole), []string{"--key", key}, ExitOK, "cut off"},
		{"against nothing", string(whole), nil, ExitInvalid, "--checkpoint"},
		{"changed", strings.Replace(string(whole), "target-4", "target-5", 1), []string{"--checkpoint", checkpoint}, ExitConflict, "record 4:"},
		{"dropped", strings.Join(append(lines[:3:3], lines[4:]...), ""), []string{"--checkpoint", checkpoint}, ExitConflict, "record 4:"},
		{"cut off", strings.Join(lines[:7], ""), []string{"--checkpoint", checkpoint}, ExitConflict, "records 8 to 10:"},
		{"no export", "hello\n", []string{"--checkpoint", checkpoint}, ExitConflict, "record 1:"},
		{"no checkpoint", string(whole), []string{"--checkpoint", export}, ExitInvalid, "checkpoint"},
		{"no key", string(whole), []string{"--key", export}, ExitInvalid, "no public key"},
		{"no file", string(whole), []string{"--checkpoint", export + "x"}, ExitNotFound, "read"},
	} {
		code, said := verify(test.text, test.args...)
		if code != test.code || !strings.Contains(said, test.says) {
			t.Errorf("%s: ended with %d and said %q, want %d and %q", test.name, code, said, test.code, test.says)
		}
	}
	if code, said := verify(strings.Join(lines[:7], ""), "--checkpoint", checkpoint, "--json"); code != ExitConflict || !strings.Contains(said, `"first":8`) {
		t.Errorf("as JSON: %d %s", code, said)
	}
}
