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
		if cfg.Blobs != config.LocalBlobs {
			return k, nil
		}
	} else {
		db, err := sqlite.Open(ctx, cfg.DatabasePath(), log)
		if err != nil {
			return nil, err
		}
		k.closers = append(k.closers, db)
		k.store = db
	}
	blobs, err := blob.OpenLocal(cfg.BlobDir())
	if err != nil {
		return nil, err
	}
	k.blobs = blobs
	k.closers = append(k.closers, blobs)
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
