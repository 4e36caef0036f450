package worker

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

func lines(entries ...entry) []byte {
	var b bytes.Buffer
	for _, e := range entries {
		line, _ := json.Marshal(e) //nolint:errchkjson // plain values
		b.Write(append(line, '\n'))
	}
	return b.Bytes()
}

// FuzzReadPast feeds a journal reader what a dying machine may leave: it never
// fails but by saying so, and what it accepts can be gone on with.
func FuzzReadPast(f *testing.F) {
	lease := dispatch.Lease{Held: dispatch.Held{JobID: "job", Fence: 3}, Attempt: 1, Payload: json.RawMessage(`{}`)}
	whole := lines(
		entry{Version: journalVersion, Boot: "b", Lease: &lease, Began: time.Unix(1, 0).UTC()},
		entry{Handle: &sandbox.Handle{Version: 1, Driver: "fake", ID: "x"}, Record: &evidence.Record{}},
		entry{Happened: &dispatch.Happening{N: 1, Type: "job.started"}}, entry{Exec: &execEntry{ID: "e"}},
		entry{Feeding: 5}, entry{Fed: 5}, entry{Record: &evidence.Record{ExitCode: 3}, Ended: true, Failure: "f"},
		entry{Performed: true}, entry{Snapshot: &evidence.Snapshot{Path: "p"}}, entry{Result: &dispatch.Result{Held: lease.Held}},
	)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte("{}\n"))
	f.Add(append(bytes.Clone(whole), make([]byte, 100)...))
	f.Add(lines(entry{Version: journalVersion, Lease: &dispatch.Lease{Held: dispatch.Held{JobID: "../up"}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, n, err := readPast(bytes.NewReader(data))
		if err != nil {
			return
		}
		if n > int64(len(data)) || p.handle == nil || p.record == nil || !validJobID(p.lease.JobID) || filepath.Base(p.name()) != p.name() {
			t.Errorf("accepted %q as %+v", data, p)
		}
		again, m, err := readPast(bytes.NewReader(data[:n]))
		if err != nil || m != n || again.name() != p.name() {
			t.Errorf("its whole lines are not accepted: %v", err)
		}
	})
}

// A journal that cannot be written is given up: nothing is better than half.
func TestJournalThatCannotBeWrittenIsGivenUp(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	j := &journal{path: path, log: slog.New(slog.DiscardHandler)}
	j.write(entry{Fed: 1})
	if _, err := os.Stat(path); err == nil {
		t.Error("there is a file before there is a sandbox")
	}
	if err := j.begin(); err != nil {
		t.Fatal(err)
	}
	j.write(entry{Fed: 2})
	if text, err := os.ReadFile(path); err != nil || string(text) != "{\"fed\":1}\n{\"fed\":2}\n" {
		t.Errorf("%q, %v", text, err)
	}
	j.file.Close() // as a disk that fails
	j.write(entry{Fed: 3})
	if _, err := os.Stat(path); err == nil {
		t.Error("half a journal is left")
	}
	j.write(entry{Fed: 4})
	j.drop()
	bad := &journal{path: filepath.Join(t.TempDir(), "none", "j"), log: j.log}
	if err := bad.begin(); err == nil {
		t.Error("a journal without a folder was begun")
	}
}
