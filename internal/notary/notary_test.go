package notary_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/notary"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/postgres"
	"github.com/aurea-dev/aurea/internal/store/postgres/pgtest"
	"github.com/aurea-dev/aurea/internal/store/sqlite"
)

// stand is a log of 20 records, with checkpoints of 10 and of 20.
type stand struct {
	t   *testing.T
	s   store.Store
	n   *notary.Notary
	dir string
	// bend runs a statement of an attacker's, past the store.
	bend func(query string, args ...any)
}

func (d *stand) ctx() context.Context {
	return policy.With(d.t.Context(), policy.Caller{Kind: policy.Director, ID: "director-1"})
}

func (d *stand) open(now func() time.Time, keep time.Duration) *notary.Notary {
	d.t.Helper()
	n, err := notary.Open(notary.Config{Store: d.s, Keys: d.dir, Dir: d.dir, Keep: keep, Now: now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

func record(about string) *audit.Record {
	return &audit.Record{At: time.Unix(1e9, 0), Category: audit.Access, Action: "job.cancel", Source: "queue", Actor: "local", Target: about}
}

func (d *stand) append(records ...*audit.Record) {
	d.t.Helper()
	ctx := d.t.Context()
	if err := d.s.Update(ctx, func(tx store.Tx) error { return tx.Audit().Append(ctx, records...) }); err != nil {
		d.t.Fatal(err)
	}
}

func (d *stand) fill(from, to int) {
	d.t.Helper()
	for i := from; i <= to; i++ {
		d.append(record(fmt.Sprint("r", i)))
	}
	if _, err := d.n.Sign(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

// records returns all.
func (d *stand) records() (list []audit.Record) {
	d.t.Helper()
	ctx := d.t.Context()
	err := d.s.View(ctx, func(tx store.Tx) (err error) {
		list, err = tx.Audit().List(ctx, audit.Filter{}, 1000)
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return list
}

// rewrite puts another log in the place of this one, whole and with good
// hashes: what a careful attacker does.
func (d *stand) rewrite(list []audit.Record) {
	d.t.Helper()
	for _, table := range []string{"audit", "audit_leaf", "audit_tree"} {
		d.bend("DELETE FROM " + table)
	}
	for i := range list {
		d.append(&list[i])
	}
}

// each runs a test over both stores.
func each(t *testing.T, server *pgtest.Server, test func(t *testing.T, d *stand)) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	begin := func(t *testing.T, s store.Store, bend func(string, ...any)) {
		t.Helper()
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		d := &stand{t: t, s: s, dir: t.TempDir(), bend: bend}
		d.n = d.open(nil, 0)
		d.fill(1, 10)
		d.fill(11, 20)
		test(t, d)
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "db")
		s, err := sqlite.Open(t.Context(), path, log)
		if err != nil {
			t.Fatal(err)
		}
		begin(t, s, func(query string, args ...any) {
			db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
			if err == nil {
				_, err = db.ExecContext(t.Context(), query, args...)
				err = errors.Join(err, db.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	})
	if server == nil && pgtest.Missing() == "" {
		return // what is tested is no matter of the database
	}
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		if server == nil {
			t.Skip(pgtest.Missing())
		}
		address, err := server.Fresh(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s, err := postgres.Open(t.Context(), address, log)
		if err != nil {
			t.Fatal(err)
		}
		begin(t, s, func(query string, args ...any) {
			conn, err := pgx.Connect(t.Context(), address)
			if err == nil {
				_, err = conn.Exec(t.Context(), query, args...)
				err = errors.Join(err, conn.Close(t.Context()))
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	})
}

// TestAttacksOnTheDatabase is list G against what is stored, by somebody who
// can write the database and has no key.
func TestAttacksOnTheDatabase(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		attack      func(d *stand)
		first, last int64
	}{
		{"flip", func(d *stand) { d.bend(`UPDATE audit SET message = 'x' WHERE seq = 7`) }, 7, 7},
		{"flip who", func(d *stand) { d.bend(`UPDATE audit SET actor = 'x' WHERE seq = 20`) }, 20, 20},
		{"flip metadata", func(d *stand) { d.bend(`UPDATE audit SET metadata = '{' WHERE seq = 3`) }, 3, 3},
		{"flip and hash anew", func(d *stand) {
			list := d.records()
			list[6].Actor = "x"
			d.rewrite(list)
		}, 1, 10},
		{"flip, hash anew, drop the checkpoints", func(d *stand) {
			list := d.records()
			list[16].Actor = "x"
			d.rewrite(list)
			d.bend(`DELETE FROM audit_checkpoint`)
		}, 1, 20},
		{"drop", func(d *stand) { d.bend(`DELETE FROM audit WHERE seq = 7`) }, 7, 7},
		{"drop with the hash", func(d *stand) {
			d.bend(`DELETE FROM audit WHERE seq = 7`)
			d.bend(`DELETE FROM audit_leaf WHERE seq = 7`)
		}, 7, 7},
		{"drop and hash anew", func(d *stand) { d.rewrite(slices.Delete(d.records(), 11, 12)) }, 20, 20},
		{"drop, add another and hash anew", func(d *stand) { d.rewrite(append(slices.Delete(d.records(), 11, 12), *record("r21"))) }, 11, 20},
		{"drop as if purged", func(d *stand) {
			d.bend(`DELETE FROM audit WHERE seq <= 2`)
			d.bend(`UPDATE audit_tree SET floor = 2`)
		}, 1, 2},
		{"reorder", func(d *stand) {
			d.bend(`UPDATE audit SET seq = 1000 WHERE seq = 7`)
			d.bend(`UPDATE audit SET seq = 7 WHERE seq = 8`)
			d.bend(`UPDATE audit SET seq = 8 WHERE seq = 1000`)
		}, 7, 7},
		{"truncate", func(d *stand) { d.rewrite(d.records()[:17]) }, 18, 20},
		{"truncate with the checkpoint", func(d *stand) {
			d.rewrite(d.records()[:17])
			d.bend(`DELETE FROM audit_checkpoint WHERE size > 10`)
		}, 18, 20},
		{"truncate all", func(d *stand) { d.rewrite(nil); d.bend(`DELETE FROM audit_checkpoint`) }, 1, 20},
		{"splice", func(d *stand) {
			list := d.records()
			d.rewrite(slices.Insert(list, 12, *record("spliced")))
		}, 11, 20},
		{"splice beside the log", func(d *stand) {
			d.bend(`INSERT INTO audit SELECT 21, at, category, severity, action, message, source, actor, target, outcome, request_id, before_state, after_state, metadata FROM audit WHERE seq = 5`)
		}, 21, 21},
		{"replay", func(d *stand) {
			list := d.records()
			d.rewrite(slices.Insert(list, 15, list[4]))
		}, 11, 20},
		{"fork", func(d *stand) {
			list := d.records()[:10]
			for i := range 12 {
				list = append(list, *record(fmt.Sprint("fork", i)))
			}
			d.rewrite(list)
		}, 11, 20},
		{"change a checkpoint", func(d *stand) { d.bend(`UPDATE audit_checkpoint SET note = REPLACE(note, 'a', 'b') WHERE size = 10`) }, 1, 10},
	}
	server := start(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			each(t, server, func(t *testing.T, d *stand) {
				if r, err := d.n.VerifyAudit(d.ctx()); err != nil || r.Finding != nil || r.Size != 20 || r.Confirmed != 20 || r.Checkpoints != 2 {
					t.Fatalf("untouched: %+v, %v", r, err)
				}
				test.attack(d)
				n := d.open(nil, 0) // also after a restart
				r, err := n.VerifyAudit(d.ctx())
				if err != nil || r.Finding == nil {
					t.Fatalf("not found: %+v, %v", r, err)
				}
				if r.Finding.First != test.first || r.Finding.Last != test.last {
					t.Errorf("found %v, want at %d to %d", r.Finding, test.first, test.last)
				}
			})
		})
	}
}

// start starts a PostgreSQL server until the end of the test.
func start(t *testing.T) *pgtest.Server {
	t.Helper()
	if reason := pgtest.Missing(); reason != "" {
		if os.Getenv("CI") == "true" {
			t.Fatal(reason)
		}
		return nil
	}
	server, err := pgtest.Start(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// TestBentLogIsNotSigned bends records before and after the last checkpoint:
// the notary signs neither.
func TestBentLogIsNotSigned(t *testing.T) {
	t.Parallel()
	server := start(t)
	for name, attack := range map[string]func(d *stand){
		"what is new":    func(d *stand) { d.bend(`UPDATE audit SET actor = 'x' WHERE seq = 21`) },
		"the hash of it": func(d *stand) { d.bend(`DELETE FROM audit_leaf WHERE seq = 21`) },
		"the past":       func(d *stand) { d.rewrite(append([]audit.Record{*record("first")}, d.records()...)) },
		"the tree": func(d *stand) {
			d.bend(`UPDATE audit_tree SET peaks = (SELECT hashes FROM audit_leaf WHERE seq = 4), size = 7`)
		},
		"all, for less": func(d *stand) { d.rewrite(d.records()[:3]) },
		"a hash in the row": func(d *stand) {
			d.bend(`UPDATE audit_leaf SET hashes = (SELECT hashes FROM audit_leaf WHERE seq = 20) WHERE seq = 16`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, server, func(t *testing.T, d *stand) {
				d.append(record("r21"))
				attack(d)
				for range 2 {
					var found *audit.Finding
					if c, err := d.n.Sign(t.Context()); !errors.As(err, &found) {
						t.Fatalf("signed %+v, %v", c, err)
					}
				}
				if _, _, err := d.n.AuditCheckpoint(d.ctx()); fault.CodeOf(err) != "audit_tampered" {
					t.Errorf("the checkpoint: %v", err)
				}
			})
		})
	}
}

// TestRunSigns lets the notary run: a record that is appended gets its
// checkpoint.
func TestRunSigns(t *testing.T) {
	t.Parallel()
	each(t, start(t), func(t *testing.T, d *stand) {
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); d.n.Run(ctx) }()
		woken := d.s.Watch(ctx)
		d.append(record("r21"))
		for range woken {
			var last store.AuditCheckpoint
			err := d.s.View(ctx, func(tx store.Tx) (err error) { last, err = tx.Audit().LastCheckpoint(ctx, ""); return err })
			if err != nil {
				t.Fatal(err)
			}
			if last.Size > 20 {
				break
			}
		}
		cancel(errors.New("the test is over"))
		<-done
	})
}

func TestProofs(t *testing.T) {
	t.Parallel()
	each(t, start(t), func(t *testing.T, d *stand) {
		ctx := d.ctx()
		p, err := d.n.ProveRecord(ctx, 7, 0)
		if err != nil || p.Size != 20 || p.Leaf != d.records()[6].Leaf() {
			t.Fatalf("got %+v, %v", p, err)
		}
		if err := tlog.CheckRecord(p.Proof, p.Size, p.Root, 6, p.Leaf); err != nil {
			t.Error(err)
		}
		c, err := d.n.ProveConsistency(ctx, 10, 20)
		if err != nil {
			t.Fatal(err)
		}
		if err := tlog.CheckTree(c.Proof, c.To, c.ToRoot, c.From, c.FromRoot); err != nil {
			t.Error(err)
		}
		for _, bad := range [][2]int64{{0, 0}, {21, 0}, {7, 6}, {7, 21}, {-1, 0}, {7, -1}} {
			if _, err := d.n.ProveRecord(ctx, bad[0], bad[1]); !fault.Is(err, fault.NotFound) {
				t.Errorf("a proof of %v: %v", bad, err)
			}
			if bad[0] != 7 || bad[1] != 0 {
				if _, err := d.n.ProveConsistency(ctx, bad[0], bad[1]); !fault.Is(err, fault.NotFound) {
					t.Errorf("a proof from %v: %v", bad, err)
				}
			}
		}
	})
}

// TestExportIsVerifiedOffline takes an export and the public key elsewhere.
func TestExportIsVerifiedOffline(t *testing.T) {
	t.Parallel()
	each(t, start(t), func(t *testing.T, d *stand) {
		var out bytes.Buffer
		if err := d.n.ExportAudit(d.ctx(), &out); err != nil {
			t.Fatal(err)
		}
		signed, vkey, err := d.n.AuditCheckpoint(d.ctx())
		if err != nil {
			t.Fatal(err)
		}
		key, err := note.NewVerifier(vkey)
		if err != nil {
			t.Fatal(err)
		}
		anchor, ok, err := audit.OpenCheckpoint(signed, key)
		if err != nil || !ok || anchor.Size != 20 {
			t.Fatalf("the checkpoint: %+v, %t, %v", anchor, ok, err)
		}
		got, err := audit.VerifyExport(bytes.NewReader(out.Bytes()), []audit.Checkpoint{anchor}, key)
		if err != nil || got.Records != 20 || got.Checkpoints != 2 || got.Confirmed != 20 || got.Root != anchor.Root {
			t.Errorf("got %+v, %v", got, err)
		}
		bent := strings.Replace(out.String(), `"target":"r7"`, `"target":"r8"`, 1)
		var found *audit.Finding
		if _, err := audit.VerifyExport(strings.NewReader(bent), nil, key); !errors.As(err, &found) || found.First != 7 || found.Last != 7 {
			t.Errorf("bent: %v", err)
		}
		var table bytes.Buffer
		d.append(&audit.Record{Category: audit.Alert, Action: "=1+1", Message: "a \"quote\",\nand a line"})
		if err := d.n.ExportAuditCSV(d.ctx(), &table, audit.Filter{After: 19}); err != nil {
			t.Fatal(err)
		}
		if text := table.String(); strings.Count(text, "job.cancel") != 1 || !strings.Contains(text, ",'=1+1,") || !strings.Contains(text, "\"a \"\"quote\"\",\nand a line\"") {
			t.Errorf("got the table %s", text)
		}
	})
}

func TestPurge(t *testing.T) {
	t.Parallel()
	each(t, start(t), func(t *testing.T, d *stand) {
		now := time.Now()
		young := record("young")
		young.At = now
		d.append(young, record("r22"))
		n := d.open(func() time.Time { return now }, 365*24*time.Hour)
		for _, kind := range policy.Kinds() {
			ctx := policy.With(t.Context(), policy.Caller{Kind: kind, ID: "k"})
			if _, err := n.PurgeAudit(ctx, "why"); !(policy.Caller{Kind: kind}).May(policy.Purge) && !fault.Is(err, fault.Denied) {
				t.Errorf("%s: %v", kind, err)
			}
			if kind == policy.Worker || kind == policy.Sandbox || kind == policy.Viewer || kind == policy.Bridge {
				if _, err := n.AuditRecords(ctx, audit.Filter{}, 1); !fault.Is(err, fault.Denied) {
					t.Errorf("%s reads: %v", kind, err)
				}
				if err := n.ExportAudit(ctx, &bytes.Buffer{}); !fault.Is(err, fault.Denied) {
					t.Errorf("%s exports: %v", kind, err)
				}
				if _, err := n.VerifyAudit(ctx); !fault.Is(err, fault.Denied) {
					t.Errorf("%s verifies: %v", kind, err)
				}
			}
			if (policy.Caller{Kind: kind}).May(policy.Purge) {
				break // the rest is purged by the first who may
			}
		}
		list := d.records()
		if list[0].Seq != 21 || list[len(list)-1].Action != audit.PurgeAction || list[len(list)-1].Message != "why" {
			t.Fatalf("left are %+v", list)
		}
		if _, err := n.PurgeAudit(d.ctx(), "again"); fault.CodeOf(err) != "retention" {
			t.Errorf("purged what is young: %v", err)
		}
		if _, err := d.n.PurgeAudit(d.ctx(), "for good"); fault.CodeOf(err) != "kept" {
			t.Errorf("purged what is kept for good: %v", err)
		}
		r, err := n.VerifyAudit(d.ctx())
		if err != nil || r.Finding != nil || r.Purged != 20 || r.Size != 23 {
			t.Errorf("got %+v, %v", r, err)
		}
		if _, err := n.ProveRecord(d.ctx(), 3, 0); err != nil {
			t.Error(err)
		}
		var out bytes.Buffer
		if err := n.ExportAudit(d.ctx(), &out); err != nil {
			t.Fatal(err)
		}
		if got, err := audit.VerifyExport(&out, nil); err != nil || got.Purged != 20 {
			t.Errorf("the export: %+v, %v", got, err)
		}
		d.bend(`DELETE FROM audit WHERE seq = 21`)
		if r, err := n.VerifyAudit(d.ctx()); err != nil || r.Finding == nil || r.Finding.First != 21 {
			t.Errorf("one more than was purged: %+v, %v", r, err)
		}
	})
}

func TestFilesOfTheNotary(t *testing.T) {
	t.Parallel()
	each(t, nil, func(t *testing.T, d *stand) {
		for _, name := range []string{"audit.key", "audit.checkpoint"} {
			info, err := os.Stat(filepath.Join(d.dir, name))
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", name, info, err)
			}
		}
		again := d.open(nil, 0)
		if again.Key() != d.n.Key() {
			t.Error("a second start has another key")
		}
		last := filepath.Join(d.dir, "audit.checkpoint")
		good, err := os.ReadFile(last)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(last, bytes.Replace(good, []byte("\n20\n"), []byte("\n10\n"), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := notary.Open(notary.Config{Store: d.s, Keys: d.dir, Dir: d.dir}); err == nil {
			t.Error("a checkpoint that was changed was taken")
		}
	})
}
