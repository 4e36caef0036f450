package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/blob/s3"
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/job"
	"github.com/aurea-dev/aurea/internal/manager"
	"github.com/aurea-dev/aurea/internal/store"
	"github.com/aurea-dev/aurea/internal/store/postgres"
	"github.com/aurea-dev/aurea/internal/store/sqlite"
)

// kept is all that a manager keeps, wherever its settings say.
type kept struct {
	store   store.Store
	blobs   blob.Store
	outputs manager.Outputs
	closers []io.Closer // in the order in which they were opened
}

// Close closes it, the last first.
func (k *kept) Close() (err error) {
	for len(k.closers) > 0 {
		last := len(k.closers) - 1
		err = errors.Join(err, k.closers[last].Close())
		k.closers = k.closers[:last]
	}
	return err
}

// openKept opens the database, the blobs and the live output.
func openKept(ctx context.Context, cfg *config.Config, log *slog.Logger) (_ *kept, err error) {
	k := &kept{}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.Close())
		}
	}()
	if cfg.Shared() {
		db, err := postgres.Open(ctx, cfg.DatabaseURL.Reveal(), log)
		if err != nil {
			return nil, err
		}
		k.closers = append(k.closers, db)
		k.store, k.blobs, k.outputs = db, db.Blobs(), db.Outputs()
	} else {
		db, err := sqlite.Open(ctx, cfg.DatabasePath(), log)
		if err != nil {
			return nil, err
		}
		k.closers = append(k.closers, db)
		k.store = db
	}
	if blobs, closer, err := openOwnBlobs(ctx, cfg, log); err != nil {
		return nil, err
	} else if blobs != nil {
		k.blobs = blobs
		k.closers = append(k.closers, closer)
	}
	if cfg.Shared() { // live output is small, and everybody's
		return k, nil
	}
	outputs, err := manager.OpenOutputFiles(cfg.OutputDir())
	if err != nil {
		return nil, err
	}
	k.outputs = outputs
	k.closers = append(k.closers, outputs)
	return k, nil
}

// openOwnBlobs opens the blobs that lie outside of the database, if they do.
func openOwnBlobs(ctx context.Context, cfg *config.Config, log *slog.Logger) (blob.Store, io.Closer, error) {
	if bucket, _ := cfg.Bucket(); bucket != "" {
		s, err := s3.Open(ctx, bucketConfig(cfg, log))
		if err != nil {
			return nil, nil, err
		}
		return s, s, nil
	}
	if cfg.Shared() && cfg.Blobs != config.LocalBlobs {
		return nil, nil, nil
	}
	local, err := blob.OpenLocal(cfg.BlobDir())
	if err != nil {
		return nil, nil, err
	}
	return local, local, nil
}

// bucketConfig says how the bucket that is set is reached.
func bucketConfig(cfg *config.Config, log *slog.Logger) s3.Config {
	bucket, prefix := cfg.Bucket()
	c := s3.Config{
		Bucket: bucket, Prefix: prefix, Endpoint: cfg.S3.Endpoint, Region: cfg.S3.Region, CAFile: cfg.S3.CAFile,
		AccessKey: cfg.S3.AccessKey, SecretKey: cfg.S3.SecretKey.Reveal(), SessionToken: cfg.S3.SessionToken.Reveal(),
		CredentialsFile: cfg.S3.CredentialsFile, Profile: cfg.S3.Profile, Logger: log,
	}
	if cfg.S3.PathStyle != "" {
		on := cfg.S3.PathStyle == "on"
		c.PathStyle = &on
	}
	return c
}

// managerID is the name of this folder's manager among others, made once.
func managerID(cfg *config.Config) (string, error) {
	path := filepath.Join(cfg.ManagerDir(), "id")
	b, err := os.ReadFile(path)
	if id := strings.TrimSpace(string(b)); err == nil && id != "" {
		return id, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the manager's id: %w", err)
	}
	id := job.NewID()
	if err := writeSecret(path, id); err != nil {
		return "", err
	}
	return id, nil
}
