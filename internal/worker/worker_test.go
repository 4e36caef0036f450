package worker_test

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/dispatch/dispatchtest"
	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/sandbox"
	"github.com/aurea-dev/aurea/internal/worker"
)

func TestEachActionIsDone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		payload string
		files   map[string]string
		stdout  string
		diff    string
	}{
		"create file by default": {`{}`, map[string]string{"result.txt": job.ResultText}, "", "+++ b/result.txt"},
		"create file": {
			payload("create file", map[string]any{"path": "a/b.txt", "content": "hi"}),
			map[string]string{"a/": "", "a/b.txt": "hi"},
			"", "+++ b/a/b.txt",
		},
		"write files": {
			payload("write files", map[string]any{"files": map[string]string{"x": "1", "d/y": "2"}}),
			map[string]string{"x": "1", "d/": "", "d/y": "2"},
			"", "+++ b/d/y",
		},
		"exec": {
			payload("exec", map[string]any{"command": []string{"sh", "-c", "cat in; echo new > out"}, "files": map[string]string{"in": "old\n"}}),
			map[string]string{"in": "old\n", "out": "new\n"},
			"old\n", "+++ b/out",
		},
		"exec with input": {
			payload("exec", map[string]any{"command": []string{"cat"}, "stdin": "from outside"}), map[string]string{}, "from outside", "",
		},
		"run": {
			payload("run", map[string]any{"language": "Shell", "code": "echo hello; rm main.sh"}), map[string]string{}, "hello\n", "+++ /dev/null",
		},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, nil, func(t *testing.T, s *stand) {
				id := s.submit(tc.payload)
				synctest.Wait()
				res, d := s.result(id)
				if !res.Success || d.Verdict != "ok" || d.ExitCode != 0 || d.Error != "" {
					t.Fatalf("success %v, details %s", res.Success, res.Details)
				}
				if d.Snapshot != filepath.Join(s.base, "snapshots", id+".tar") {
					t.Errorf("the snapshot is %s", d.Snapshot)
				}
				want := map[string]string{id + "/": ""}
				for name, text := range tc.files {
					want[id+"/"+name] = text
				}
				if diff := cmp.Diff(want, s.files(d.Snapshot)); diff != "" {
					t.Error(diff)
				}
				data, err := os.ReadFile(d.Snapshot)
				sum := sha256.Sum256(data)
				if err != nil || hex.EncodeToString(sum[:]) != d.SHA256 || d.Bytes != int64(len(data)) || string(res.Inline[d.SHA256]) != string(data) {
					t.Errorf("the snapshot does not fit its digest, or does not ride along: %v", err)
				}
				if res.Record.Snapshot.TreeDigest != d.TreeDigest || !strings.HasPrefix(d.TreeDigest, "sha256:") {
					t.Errorf("tree digest %q", d.TreeDigest)
				}
				out, ok := inline(res, "stdout.log")
				if !ok || out != tc.stdout || d.StdoutBytes != int64(len(tc.stdout)) {
					t.Errorf("stdout is %q, %v", out, ok)
				}
				changes, ok := inline(res, "changes.diff")
				if !ok || !strings.Contains(changes, tc.diff) || (tc.diff == "" && changes != "") {
					t.Errorf("the diff is %q, %v", changes, ok)
				}
				if diff := cmp.Diff([]string{"stdout.log", "stderr.log", "changes.diff"}, names(res)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestRecordSaysWhatRan(t *testing.T) {
	limits := sandbox.Limits{Memory: 64 << 20, Processes: 10}
	story(t, func(c *worker.Config) { c.Limits, c.Image = limits, "some/image" }, func(t *testing.T, s *stand) {
		p := payload("exec", map[string]any{"command": []string{"sh", "-c", "echo out; echo err >&2; exit 3"}})
		id := s.submit(p)
		synctest.Wait()
		res, d := s.result(id)
		r := res.Record
		sum := sha256.Sum256([]byte(p))
		if res.Success || d.Verdict != "failed" || d.ExitCode != 3 || d.Error != "" {
			t.Errorf("a failing script is a result: %s", res.Details)
		}
		if r.JobID != id || r.Attempt != 1 || r.Fence != res.Fence || r.Worker != "worker_default" || r.Driver != "fake" ||
			r.PayloadSHA256 != hex.EncodeToString(sum[:]) || r.Image != "some/image" || r.ImageDigest != fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("some/image"))) || r.Network != sandbox.NetworkNone ||
			r.Asked != limits || limits.Hold(r.Enforced) != nil || r.ExitCode != 3 || r.Sandbox == "" ||
			r.Stdout.Bytes != 4 || r.Stderr.Bytes != 4 || r.Snapshot == nil || r.Timeout != 15*time.Minute || r.Usage == nil {
			t.Errorf("the record is %+v", r)
		}
		want := []event.Type{
			event.JobStarted, event.SandboxCreated, event.ExecStarted, event.ExecEnded, event.SandboxDestroyed, event.SnapshotStored,
		}
		if diff := cmp.Diff(want, s.types(id)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestShortJobCostsOneCall(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		id := s.submit(payload("exec", map[string]any{"command": []string{"echo", "hi"}}))
		pass(time.Second)
		s.result(id)
		if s.line.report.Load() != 0 || s.line.finish.Load() != 1 {
			t.Errorf("it took %d reports and %d finishes", s.line.report.Load(), s.line.finish.Load())
		}
	})
}

func TestLongJobIsSeenLive(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		id := s.submit(payload("exec", map[string]any{"command": []string{"sh", "-c", "echo one; sleep 60; echo two"}}))
		pass(time.Second)
		if got := string(s.ref.Output(id, sandbox.Stdout)); got != "one\n" {
			t.Errorf("after a second the manager has %q", got)
		}
		want := []event.Type{event.JobStarted, event.SandboxCreated, event.ExecStarted}
		if diff := cmp.Diff(want, s.types(id)); diff != "" {
			t.Error(diff)
		}
		pass(2 * time.Minute)
		res, _ := s.result(id)
		if out, _ := inline(res, "stdout.log"); out != "one\ntwo\n" {
			t.Errorf("stdout.log is %q", out)
		}
		if n := len(s.types(id)); n != 6 {
			t.Errorf("%d events", n)
		}
	})
}

func TestLargeOutputGoesThroughTheSpool(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		id := s.submit(payload("exec", map[string]any{"command": []string{"x"}, "env": map[string]string{"FAKE_OUTPUT_BYTES": "3MB"}}))
		pass(time.Second)
		res, d := s.result(id)
		if _, rides := inline(res, "stdout.log"); rides || d.StdoutBytes != 3_000_000 {
			t.Errorf("%d bytes, rides along: %v", d.StdoutBytes, rides)
		}
		if left := entries(t, filepath.Join(s.base, "spool")); len(left) != 0 {
			t.Errorf("the spool keeps %q", left)
		}
	})
}

func TestArtifactsFolderIsKept(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		id := s.submit(payload("write files", map[string]any{"files": map[string]string{
			"artifacts/report.txt": "r", "artifacts/sub/big": strings.Repeat("b", 100_000), "other": "o",
		}}))
		synctest.Wait()
		res, _ := s.result(id)
		want := []string{"stdout.log", "stderr.log", "changes.diff", "artifacts/report.txt", "artifacts/sub/big"}
		if diff := cmp.Diff(want, names(res)); diff != "" {
			t.Error(diff)
		}
		if text, ok := inline(res, "artifacts/report.txt"); !ok || text != "r" {
			t.Errorf("the small one is %q, %v", text, ok)
		}
		if _, ok := inline(res, "artifacts/sub/big"); ok {
			t.Error("the big one rides along")
		}
	})
}

func TestWhatCannotRunFailsWithAReason(t *testing.T) {
	t.Parallel()
	exec := func(env map[string]string) string {
		return payload("exec", map[string]any{"command": []string{"true"}, "files": map[string]string{"f": "x"}, "env": env})
	}
	for name, tc := range map[string]struct{ payload, verdict, says string }{
		"language": {payload("run", map[string]any{"language": "cobol", "code": "x"}), "failed", `"cobol" is not known here`},
		"payload":  {`{"action":"exec","command":[]}`, "failed", "command"},
		"file taken": {
			payload("run", map[string]any{"language": "sh", "code": "x", "files": map[string]string{"main.sh": ""}}), "failed", "main.sh",
		},
		"program":      {payload("exec", map[string]any{"command": []string{"/workspace/none"}}), "failed", ""},
		"create":       {exec(map[string]string{"FAKE_CRASH": "create"}), "lost", "create sandbox"},
		"put":          {exec(map[string]string{"FAKE_CRASH": "put"}), "lost", "put files"},
		"start":        {exec(map[string]string{"FAKE_CRASH": "exec"}), "lost", "*"}, // the death may be seen at the start, or after it
		"running":      {exec(map[string]string{"FAKE_CRASH": "run"}), "lost", ""},
		"get":          {exec(map[string]string{"FAKE_CRASH": "get"}), "lost", "take files out"},
		"memory":       {exec(map[string]string{"FAKE_OOM": "1"}), "oom", ""},
		"create hangs": {exec(map[string]string{"FAKE_HANG": "create"}), "lost", "not ready in time"},
		"put hangs":    {exec(map[string]string{"FAKE_HANG": "put"}), "timeout", "time of the job ran out"},
		"start hangs":  {exec(map[string]string{"FAKE_HANG": "exec"}), "lost", "not started in time"},
		"run hangs":    {exec(map[string]string{"FAKE_HANG": "run"}), "timeout", ""},
		"get hangs":    {exec(map[string]string{"FAKE_HANG": "get"}), "lost", "took too long"},
		"destroy":      {exec(map[string]string{"FAKE_HANG": "destroy", "FAKE_EXIT": "1"}), "failed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, nil, func(t *testing.T, s *stand) {
				id := s.submit(tc.payload)
				pass(time.Hour)
				res, d := s.result(id)
				says := strings.Contains(d.Error, tc.says) && (tc.says != "" || d.Error == "") || tc.says == "*"
				if res.Success || d.Verdict != tc.verdict || !says {
					t.Errorf("success %v, %s", res.Success, res.Details)
				}
				s.noSandboxes()
				if next := s.submit(`{}`); next != "" {
					synctest.Wait()
					if res, _ := s.result(next); !res.Success {
						t.Error("the worker does not go on")
					}
				}
			})
		})
	}
}

func TestTimeoutKeepsWhatWasPrinted(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		id := s.submit(payload("exec", map[string]any{"command": []string{"sh", "-c", "echo before; echo kept > f; sleep 10000"}}))
		pass(20 * time.Minute)
		res, d := s.result(id)
		if res.Success || d.Verdict != "timeout" {
			t.Errorf("success %v, %s", res.Success, res.Details)
		}
		if out, _ := inline(res, "stdout.log"); out != "before\n" {
			t.Errorf("stdout.log is %q", out)
		}
		if got := s.files(d.Snapshot)[id+"/f"]; got != "kept\n" {
			t.Errorf("f is %q", got)
		}
	})
}

func TestCancelStopsTheWork(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		id := s.submit(payload("exec", map[string]any{"command": []string{"sleep", "10000"}}))
		pass(time.Second)
		if left, err := s.driver.List(t.Context()); err != nil || len(left) != 1 {
			t.Fatalf("%d sandboxes run, %v", len(left), err)
		}
		s.ref.Cancel(id)
		synctest.Wait()
		s.noSandboxes()
		if _, err := os.Stat(s.workspace(id)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the workspace is left: %v", err)
		}
		pass(time.Minute)
		if len(s.ref.Accepted(id)) != 0 || s.ref.Refused(id) != 0 {
			t.Errorf("%d results, %d refusals", len(s.ref.Accepted(id)), s.ref.Refused(id))
		}
	})
}

// The command stream can be faster than the answer that brings the lease.
func TestCancelBeforeTheLeaseArrives(t *testing.T) {
	var s *stand
	early := func(c *worker.Config) {
		l := c.Manager.(*line)
		l.leased = func(ls []dispatch.Lease) []dispatch.Lease {
			for _, lease := range ls {
				l.Manager.(*dispatchtest.Reference).Cancel(lease.JobID)
			}
			return ls
		}
	}
	story(t, early, func(t *testing.T, given *stand) {
		s = given
		id := s.submit(payload("exec", map[string]any{"command": []string{"sleep", "5"}}))
		synctest.Wait()
		s.noSandboxes()
		pass(time.Minute)
		if len(s.ref.Accepted(id)) != 0 || s.ref.Refused(id) != 0 {
			t.Error("the cancelled job was worked on")
		}
	})
}

// A lease that ran out is given to the same worker again: the old work stops,
// the new one starts clean and has evidence of its own.
func TestGoneLeaseMakesRoomForTheNextTry(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		id := s.submit(payload("exec", map[string]any{"command": []string{"sh", "-c", "echo x >> log; sleep 20"}}))
		pass(5 * time.Second)
		s.ref.Expire(id)
		pass(time.Minute)
		res, d := s.result(id)
		if !res.Success || res.Record.Attempt != 2 || filepath.Base(d.Snapshot) != id+".2.tar" {
			t.Errorf("attempt %d, %s", res.Record.Attempt, res.Details)
		}
		if got := s.files(d.Snapshot)[id+"/log"]; got != "x\n" {
			t.Errorf("the second try saw the first: %q", got)
		}
		if s.ref.Refused(id) != 0 {
			t.Errorf("%d refusals", s.ref.Refused(id))
		}
	})
}

// While the manager is away work goes on; when it is back, everything arrives
// in order and exactly once.
func TestManagerAway(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(l *line) *atomic.Bool{
		"calls lost":   func(l *line) *atomic.Bool { return &l.away },
		"answers lost": func(l *line) *atomic.Bool { return &l.mute },
	} {
		t.Run(name, func(t *testing.T) {
			story(t, nil, func(t *testing.T, s *stand) {
				broken := breaks(s.line)
				long := s.submit(payload("exec", map[string]any{"command": []string{"sh", "-c", "echo a; sleep 2; echo b; sleep 2; echo c; sleep 60; echo d"}}))
				big := s.submit(payload("exec", map[string]any{
					"command": []string{"x"}, "env": map[string]string{"FAKE_OUTPUT_BYTES": "300KB", "FAKE_SLEEP": "3s"},
				}))
				pass(time.Second)
				broken.Store(true)
				pass(20 * time.Second) // within the leases' term
				broken.Store(false)
				pass(2 * time.Minute)
				res, _ := s.result(long)
				if out := string(s.ref.Output(long, sandbox.Stdout)); !strings.HasPrefix("a\nb\nc\nd\n", out) || len(out) < 6 {
					t.Errorf("live output is %q", out)
				}
				if out, _ := inline(res, "stdout.log"); out != "a\nb\nc\nd\n" {
					t.Errorf("stdout.log is %q", out)
				}
				for _, id := range []string{long, big} {
					if res, _ := s.result(id); !res.Success || res.Record.Attempt != 1 || len(s.types(id)) != 6 || s.ref.Refused(id) != 0 {
						t.Errorf("%s: attempt %d, %d events, %d refusals", id, res.Record.Attempt, len(s.types(id)), s.ref.Refused(id))
					}
				}
			})
		})
	}
}

func TestManagerRestart(t *testing.T) {
	story(t, nil, func(t *testing.T, s *stand) {
		id := s.submit(payload("exec", map[string]any{"command": []string{"sleep", "40"}}))
		pass(3 * time.Second)
		for range 3 {
			s.ref.Restart()
			pass(time.Second)
		}
		if !s.ref.Attending("worker_default") {
			t.Error("the command stream is not open again")
		}
		pass(time.Minute)
		if res, _ := s.result(id); !res.Success || res.Record.Attempt != 1 {
			t.Errorf("attempt %d, %s", res.Record.Attempt, res.Details)
		}
	})
}

// One result that the manager does not take becomes a failure with a reason,
// and does not hold up the others.
func TestSpoiledResult(t *testing.T) {
	var bad string
	refuse := func(c *worker.Config) {
		c.Manager.(*line).spoils = func(r dispatch.FinishRequest) error {
			for _, res := range r.Results {
				if res.JobID == bad && res.Success {
					return fault.New(fault.Invalid, "no such artifact")
				}
			}
			return nil
		}
	}
	story(t, refuse, func(t *testing.T, s *stand) {
		bad = s.submit(`{}`)
		good := []string{s.submit(`{}`), s.submit(`{}`)}
		pass(time.Second)
		if res, d := s.result(bad); res.Success || !strings.Contains(d.Error, "no such artifact") {
			t.Errorf("success %v, %s", res.Success, res.Details)
		}
		for _, id := range good {
			if res, _ := s.result(id); !res.Success {
				t.Errorf("%s: %s", id, res.Details)
			}
		}
	})
}

func TestSlotsBoundTheSandboxes(t *testing.T) {
	var driver *counting
	story(t, func(c *worker.Config) {
		c.Slots = 3
		driver = &counting{Driver: c.Drivers["fake"]}
		c.Drivers = map[string]sandbox.Driver{"fake": driver}
	}, func(t *testing.T, s *stand) {
		var ids []string
		for range 40 {
			ids = append(ids, s.submit(payload("exec", map[string]any{"command": []string{"sleep", "1"}})))
		}
		pass(time.Minute)
		for _, id := range ids {
			s.result(id)
		}
		if driver.most != 3 {
			t.Errorf("%d sandboxes lived at a time, want 3", driver.most)
		}
	})
}

func TestHostileWorkspace(t *testing.T) {
	data := tarOf(t,
		tar.Header{Name: "fine", Typeflag: tar.TypeReg, Size: 3},
		tar.Header{Name: "artifacts", Linkname: "/etc", Typeflag: tar.TypeSymlink},
		tar.Header{Name: "../../up", Typeflag: tar.TypeReg, Size: 3},
		tar.Header{Name: "/abs", Typeflag: tar.TypeReg, Size: 3},
		tar.Header{Name: "passwd", Linkname: "../../../../../../etc/passwd", Typeflag: tar.TypeSymlink},
		tar.Header{Name: "fifo", Typeflag: tar.TypeFifo},
		tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3},
		tar.Header{Name: "hard", Linkname: "fine", Typeflag: tar.TypeLink},
	)
	story(t, func(c *worker.Config) {
		c.Drivers = map[string]sandbox.Driver{"fake": &counting{Driver: c.Drivers["fake"], hostile: data}}
	}, func(t *testing.T, s *stand) {
		id := s.submit(`{}`)
		synctest.Wait()
		res, d := s.result(id)
		if !res.Success {
			t.Fatalf("%s", res.Details)
		}
		want := map[string]string{
			id + "/": "", id + "/fine": "xxx", id + "/artifacts": "-> /etc", id + "/passwd": "-> ../../../../../../etc/passwd",
		}
		if diff := cmp.Diff(want, s.files(d.Snapshot)); diff != "" {
			t.Error(diff)
		}
		if len(res.Artifacts) != 3 || len(res.Record.Skipped) != 5 {
			t.Errorf("artifacts %q, skipped %q", names(res), res.Record.Skipped)
		}
		if got := entries(t, s.base); !slices.Equal(got, []string{"binders", "boxes", "checkpoints", "leases", "snapshots", "spool", "worker.json", "worker.lock", "workspaces"}) {
			t.Errorf("the base holds %q", got)
		}
	})
}

// A sandbox that answers with nonsense fails its job and harms nobody.
func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{
		"no tar":  []byte(strings.Repeat("nonsense ", 1000)),
		"endless": append(tarOf(t), make([]byte, 2<<20)...),
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(c *worker.Config) {
				c.Drivers = map[string]sandbox.Driver{"fake": &counting{Driver: c.Drivers["fake"], hostile: data}}
			}, func(t *testing.T, s *stand) {
				id := s.submit(`{}`)
				synctest.Wait()
				if res, d := s.result(id); res.Success || !strings.Contains(d.Error, "take files out") {
					t.Errorf("success %v, %s", res.Success, res.Details)
				}
			})
		})
	}
}
