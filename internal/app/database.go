package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/service/supervise"
	"github.com/aurea-dev/aurea/internal/store/sqlstore"
)

// databaseCommands are the commands that move what a manager keeps.
func databaseCommands() []*cobra.Command {
	db := &cobra.Command{Use: "db", Short: "Move the manager's database"}
	db.AddCommand(copyCommand())
	return []*cobra.Command{backupCommand(), restoreCommand(), db}
}

// managerConfig reads the settings of the manager of this machine.
func managerConfig(data string) (*config.Config, error) {
	flags := map[string]string{}
	if data != "" {
		flags["data"] = data
	}
	return config.Load(config.FromProcess(config.Manager, "", flags))
}

func backupCommand() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Save everything a manager keeps: jobs, events, evidence, blobs, keys",
		Long:  "Save everything a manager keeps into one file: jobs, events, evidence, blobs and keys.\nThe manager may go on meanwhile; what is saved is one moment. The file holds secrets.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := managerConfig(data)
			if err != nil {
				return err
			}
			saved, err := backUpTo(cmd.Context(), cfg, args[0])
			if err != nil {
				return err
			}
			return saved.print(cmd.OutOrStdout(), "saved")
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "the manager's data folder (AUREA_DATA)")
	return cmd
}

// backUpTo writes a file of mode 0600, whole or not at all.
func backUpTo(ctx context.Context, cfg *config.Config, path string) (saved *manifest, err error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, fault.New(fault.Conflict, "%s exists; choose another name", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".backup-*") // of mode 0600
	if err != nil {
		return nil, fmt.Errorf("write the backup: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // unless it was renamed
	saved, err = backUp(ctx, cfg, f, slog.New(slog.DiscardHandler))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return nil, fmt.Errorf("write the backup: %w", err)
	}
	return saved, nil
}

func restoreCommand() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Fill an empty data folder or database from a backup",
		Long:  "Fill an empty data folder, or the empty database that DATABASE_URL names, from a backup,\nand compare what is there then with what was saved.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := managerConfig(data)
			if err != nil {
				return err
			}
			f, err := os.Open(args[0])
			if err != nil {
				return fault.New(fault.NotFound, "open the backup: %w", err)
			}
			defer func() { _ = f.Close() }()
			release, err := occupy(cfg)
			if err != nil {
				return err
			}
			defer release()
			got, err := restore(cmd.Context(), cfg, f, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			return got.print(cmd.OutOrStdout(), "restored")
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "the manager's data folder (AUREA_DATA)")
	return cmd
}

func copyCommand() *cobra.Command {
	var data, to string
	cmd := &cobra.Command{
		Use:   "copy",
		Short: "Copy the manager's database into another, such as SQLite into PostgreSQL",
		Long:  "Copy the manager's database and blobs into another, empty database, such as from SQLite into PostgreSQL.\nStop the manager first; set DATABASE_URL to the new one afterwards.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := managerConfig(data)
			if err != nil {
				return err
			}
			target := *from
			target.DatabaseURL = config.Secret(to)
			if err := target.Validate(config.Manager); err != nil {
				return err
			}
			release, err := occupy(from)
			if err != nil {
				return err
			}
			defer release()
			got, err := copyAll(cmd.Context(), from, &target, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			return got.print(cmd.OutOrStdout(), "copied")
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "the manager's data folder (AUREA_DATA)")
	cmd.Flags().StringVar(&to, "to", "", "the new database, as postgres://USER:PASSWORD@HOST/DATABASE")
	_ = cmd.MarkFlagRequired("to") // the flag exists
	return cmd
}

// occupy keeps a manager from running on the folder meanwhile.
func occupy(cfg *config.Config) (release func(), err error) {
	if err := makeManagerDirs(cfg); err != nil {
		return nil, err
	}
	lock, err := supervise.TakeLock(filepath.Join(cfg.ManagerDir(), "manager.lock"), "the manager's folder "+cfg.ManagerDir())
	if err != nil {
		return nil, err
	}
	return func() { _ = lock.Unlock() }, nil
}

// copyAll copies rows and blobs, and compares.
func copyAll(ctx context.Context, from, to *config.Config, log *slog.Logger) (*manifest, error) {
	want, there := newManifest(), newManifest()
	if err := copyRows(ctx, from, to, want, log); err != nil {
		return nil, err
	}
	source, closeSource, err := openBlobs(ctx, from, log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = closeSource.Close() }()
	target, closeTarget, err := openBlobs(ctx, to, log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = closeTarget.Close() }()
	err = source.Walk(ctx, func(info blob.Info) error {
		want.Blobs++
		want.Bytes += info.Bytes
		open, size, err := source.Open(ctx, info.Digest)
		if err != nil {
			return err
		}
		defer func() { _ = open.Close() }()
		return target.Put(ctx, info.Digest, size, open)
	})
	if err != nil {
		return nil, err
	}
	err = target.Walk(ctx, func(info blob.Info) error {
		there.Blobs++
		there.Bytes += info.Bytes
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := dump(ctx, to, func(l sqlstore.Line) error { return there.count(&l) }); err != nil {
		return nil, err
	}
	if what := want.differs(there); what != "" {
		return nil, fault.New(fault.Internal, "the copy is not what was copied: %s", what)
	}
	return want, nil
}

// copyRows hands rows from one database to the other as they are read.
func copyRows(ctx context.Context, from, to *config.Config, want *manifest, log *slog.Logger) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lines, read := make(chan sqlstore.Line, 100), make(chan error, 1)
	go func() {
		err := dump(ctx, from, func(l sqlstore.Line) error {
			if err := want.count(&l); err != nil {
				return err
			}
			select {
			case lines <- l:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		read <- err
		close(read)
		close(lines)
	}()
	err := load(ctx, to, log, func() (sqlstore.Line, error) {
		if l, more := <-lines; more {
			return l, nil
		}
		if err := <-read; err != nil { // half of it is not to be kept
			return sqlstore.Line{}, err
		}
		return sqlstore.Line{}, io.EOF
	})
	if err == nil {
		return nil
	}
	cancel(err)
	for range lines { //nolint:revive // until the reader has ended
	}
	return err
}

// print says what there is.
func (m *manifest) print(w io.Writer, did string) error {
	var rows int64
	for _, sum := range m.Tables {
		rows += sum.Rows
	}
	_, err := fmt.Fprintf(w, "%s %d rows of %d tables, %d blobs of %d bytes\n", did, rows, len(m.Tables), m.Blobs, m.Bytes)
	return err
}
