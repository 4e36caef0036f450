package app

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/blob/s3/s3test"
	"github.com/aurea-dev/aurea/internal/cli"
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/doctor"
	"github.com/aurea-dev/aurea/internal/evidence"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/postgres/pgtest"
	"github.com/aurea-dev/aurea/internal/store/sqlstore"
)

var quiet = slog.New(slog.DiscardHandler)

// installation is an empty one, in SQLite or in PostgreSQL.
func installation(t *testing.T, server *pgtest.Server) *config.Config {
	t.Helper()
	cfg := &config.Config{Data: t.TempDir()}
	if server != nil {
		address, err := server.Fresh(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		cfg.DatabaseURL = config.Secret(address)
	}
	if err := makeManagerDirs(cfg); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// furnish puts one of everything into an installation.
func furnish(t *testing.T, cfg *config.Config) {
	t.Helper()
	ctx := t.Context()
	k, err := openKept(ctx, cfg, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close() }()
	err = k.store.Update(ctx, func(tx store.Tx) error {
		for range 3 {
			if err := seedBatch(ctx, tx, 50); err != nil {
				return err
			}
		}
		key, _ := policy.NewKey(policy.Admin, "admin", time.Now())
		small := []byte("small \x00\xff bytes")
		for _, err := range []error{
			tx.Keys().Add(ctx, key),
			tx.Workers().Put(ctx, job.Worker{ID: "w", Models: []string{"é"}}),
			tx.Replies().Put(ctx, "o", "k", store.Reply{Request: "r", Body: json.RawMessage(`{"a":"<é>"}`), At: time.Now()}),
			tx.Records().Add(ctx, evidence.Record{JobID: "j", Attempt: 1}, []evidence.Artifact{{Name: "a", SHA256: blob.Digest(small)}},
				map[string][]byte{blob.Digest(small): small}),
		} {
			if err != nil {
				return err
			}
		}
		_, _, err := tx.Leaders().Acquire(ctx, "a", time.Now(), time.Minute, false)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte("large"), 600_000)
	if err := k.blobs.Put(ctx, blob.Digest(large), int64(len(large)), bytes.NewReader(large)); err != nil {
		t.Fatal(err)
	}
	if err := writeSecret(filepath.Join(cfg.KeyDir(), "admin.key"), "secret"); err != nil {
		t.Fatal(err)
	}
}

// contents sums up an installation from its rows.
func contents(t *testing.T, cfg *config.Config) *manifest {
	t.Helper()
	m := newManifest()
	if err := dump(t.Context(), cfg, func(l sqlstore.Line) error { return m.count(&l) }); err != nil {
		t.Fatal(err)
	}
	return m
}

func testServer(t *testing.T) *pgtest.Server {
	t.Helper()
	if reason := pgtest.Missing(); reason != "" {
		if os.Getenv("CI") == "true" {
			t.Fatal(reason)
		}
		t.Skip("left out: " + reason)
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

// What is saved of one database comes back in the same and in the other.
func TestBackupAndCopyBringEverything(t *testing.T) {
	t.Parallel()
	server := testServer(t)
	for _, from := range []*pgtest.Server{nil, server} {
		cfg := installation(t, from)
		furnish(t, cfg)
		want := contents(t, cfg)
		if want.Tables["event"].Rows != 150 || want.Tables["record"].Rows != 1 {
			t.Fatalf("got %d events, %d records", want.Tables["event"].Rows, want.Tables["record"].Rows)
		}
		var file bytes.Buffer
		saved, err := backUp(t.Context(), cfg, &file, quiet)
		if err != nil || saved.Blobs != 1 || saved.Keys != 1 {
			t.Fatalf("got %+v, %v", saved, err)
		}
		for _, to := range []*pgtest.Server{nil, server} {
			restored := installation(t, to)
			if _, err := restore(t.Context(), restored, bytes.NewReader(file.Bytes()), quiet); err != nil {
				t.Fatal(err)
			}
			if what := want.differs(contents(t, restored)); what != "" {
				t.Error(what)
			}
			if key, err := os.ReadFile(filepath.Join(restored.KeyDir(), "admin.key")); err != nil || string(key) != "secret\n" {
				t.Errorf("the key is %q, %v", key, err)
			}
			if _, err := restore(t.Context(), restored, bytes.NewReader(file.Bytes()), quiet); fault.CodeOf(err) != "not_empty" {
				t.Errorf("restored over what was there: %v", err)
			}
			copied := installation(t, to)
			if _, err := copyAll(t.Context(), cfg, copied, quiet); err != nil {
				t.Fatal(err)
			}
			if what := want.differs(contents(t, copied)); what != "" {
				t.Error(what)
			}
			goOn(t, copied)
		}
	}
}

// What is saved of a folder comes back in a bucket, and the other way round.
func TestBackupWithABucket(t *testing.T) {
	t.Parallel()
	if reason := s3test.Missing(); reason != "" {
		if os.Getenv("CI") == "true" {
			t.Fatal(reason)
		}
		t.Skip("left out: " + reason)
	}
	server, err := s3test.Start(context.WithoutCancel(t.Context()), "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	inBucket := func() *config.Config {
		cfg := installation(t, nil)
		name, err := server.Bucket()
		if err != nil {
			t.Fatal(err)
		}
		cfg.Blobs = "s3://" + name + "/of/aurea"
		cfg.S3 = config.S3{Endpoint: server.Endpoint, PathStyle: "on", AccessKey: s3test.AccessKey, SecretKey: s3test.SecretKey}
		return cfg
	}
	from := inBucket()
	furnish(t, from)
	want := contents(t, from)
	for _, to := range []*config.Config{inBucket(), installation(t, nil)} {
		var file bytes.Buffer
		if saved, err := backUp(t.Context(), from, &file, quiet); err != nil || saved.Blobs != 1 {
			t.Fatalf("got %+v, %v", saved, err)
		}
		if _, err := restore(t.Context(), to, &file, quiet); err != nil {
			t.Fatal(err)
		}
		if what := want.differs(contents(t, to)); what != "" {
			t.Error(what)
		}
		goOn(t, to)
	}
	if found, err := os.ReadDir(filepath.Join(from.BlobDir(), "writing")); err == nil {
		t.Errorf("the data folder was used too: %v", found)
	}
	report := Doctor(t.Context(), cli.Start{Config: from})
	if report.Blobs == nil || report.Blobs.Level != doctor.OK {
		t.Errorf("doctor says %+v", report.Blobs)
	}
	from.Blobs = "s3://no-such-bucket"
	if report := Doctor(t.Context(), cli.Start{Config: from}); report.Healthy() || !strings.Contains(report.Blobs.Found, "no-such-bucket") {
		t.Errorf("doctor says %+v", report.Blobs)
	}
}

// goOn writes into what was copied: numbers must follow those that came.
func goOn(t *testing.T, cfg *config.Config) {
	t.Helper()
	k, err := openKept(t.Context(), cfg, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close() }()
	if err := k.store.Update(t.Context(), func(tx store.Tx) error { return seedBatch(t.Context(), tx, 10) }); err != nil {
		t.Error(err)
	}
}

// A backup that is cut short, or of which a byte was changed, restores nothing
// that looks whole.
func TestDamagedBackupsAreRefused(t *testing.T) {
	t.Parallel()
	cfg := installation(t, nil)
	furnish(t, cfg)
	var file bytes.Buffer
	if _, err := backUp(t.Context(), cfg, &file, quiet); err != nil {
		t.Fatal(err)
	}
	whole := file.Bytes()
	for _, at := range []int{0, 1, len(whole) / 4, len(whole) / 2, len(whole) - 20} {
		changed := bytes.Clone(whole)
		changed[at] ^= 0x55
		for what, text := range map[string][]byte{"cut": whole[:at], "changed": changed} {
			if _, err := restore(t.Context(), installation(t, nil), bytes.NewReader(text), quiet); err == nil {
				t.Errorf("%s at %d of %d: it was restored", what, at, len(whole))
			} else if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error tells a secret: %v", err)
			}
		}
	}
}
