package app

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store/postgres"
	"github.com/aurea-dev/aurea/internal/store/sqlite"
	"github.com/aurea-dev/aurea/internal/store/sqlstore"
)

// A backup is a tar archive, compressed: the rows of all tables in pieces, the
// blobs, the keys, and at its end a manifest by which it is checked. It does
// not matter which database it came from.
const (
	rowsDir      = "rows/"
	blobsDir     = "blobs/"
	keysDir      = "keys/"
	manifestName = "manifest.json"

	rowsPiece = 4 << 20  // when a piece of rows ends
	maxPiece  = 64 << 20 // a piece has at least one row, however large
	maxKey    = 64 << 10
)

// manifest says what is in a backup.
type manifest struct {
	Version int                      `json:"version"`
	At      time.Time                `json:"at"`
	Tables  map[string]*sqlstore.Sum `json:"tables"`
	Blobs   int64                    `json:"blobs"`
	Bytes   int64                    `json:"blob_bytes"`
	Keys    int                      `json:"keys"`
}

// count adds a line to its table.
func (m *manifest) count(l *sqlstore.Line) error {
	if m.Tables[l.Table] == nil {
		m.Tables[l.Table] = &sqlstore.Sum{}
	}
	return m.Tables[l.Table].Add(l)
}

// differs names the first thing in which two differ, or "".
func (m *manifest) differs(other *manifest) string {
	for name, sum := range m.Tables {
		o := other.Tables[name]
		if o == nil {
			o = &sqlstore.Sum{}
		}
		if !sum.Equal(o) {
			return fmt.Sprintf("the table %s has %d rows, and %d should be there as they are", name, o.Rows, sum.Rows)
		}
	}
	if m.Blobs != other.Blobs || m.Bytes != other.Bytes {
		return fmt.Sprintf("there are %d blobs of %d bytes, and %d of %d should be there", other.Blobs, other.Bytes, m.Blobs, m.Bytes)
	}
	return ""
}

func newManifest() *manifest {
	return &manifest{Version: 1, At: time.Now().UTC(), Tables: map[string]*sqlstore.Sum{}}
}

// dump hands over the rows of the manager's database.
func dump(ctx context.Context, cfg *config.Config, put func(sqlstore.Line) error) error {
	if cfg.Shared() {
		return postgres.Dump(ctx, cfg.DatabaseURL.Reveal(), put)
	}
	if _, err := os.Stat(cfg.DatabasePath()); err != nil {
		return fault.New(fault.NotFound, "there is no database at %s", cfg.DatabasePath())
	}
	return sqlite.Dump(ctx, cfg.DatabasePath(), put)
}

// load fills the manager's database.
func load(ctx context.Context, cfg *config.Config, log *slog.Logger, next func() (sqlstore.Line, error)) error {
	if cfg.Shared() {
		return postgres.Load(ctx, cfg.DatabaseURL.Reveal(), log, next)
	}
	return sqlite.Load(ctx, cfg.DatabasePath(), log, next)
}

// openBlobs opens the blobs of a manager without the rest.
func openBlobs(ctx context.Context, cfg *config.Config, log *slog.Logger) (blob.Store, io.Closer, error) {
	blobs, closer, err := openOwnBlobs(ctx, cfg, log)
	if err != nil || blobs != nil {
		return blobs, closer, err
	}
	db, err := postgres.Open(ctx, cfg.DatabaseURL.Reveal(), log)
	if err != nil {
		return nil, nil, err
	}
	return db.Blobs(), db, nil
}

// backUp writes a backup while managers may run. The rows come first: a record
// that is among them names only blobs that were there before it, and those stay
// for an hour at least after nothing refers to them.
func backUp(ctx context.Context, cfg *config.Config, w io.Writer, log *slog.Logger) (*manifest, error) {
	zipped := gzip.NewWriter(w)
	b := &backup{tar: tar.NewWriter(zipped), manifest: newManifest()}
	if err := b.rows(ctx, cfg); err != nil {
		return nil, err
	}
	blobs, closer, err := openBlobs(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = closer.Close() }()
	if err := b.blobs(ctx, blobs); err != nil {
		return nil, err
	}
	if err := b.keys(cfg); err != nil {
		return nil, err
	}
	text, err := json.Marshal(b.manifest)
	if err != nil {
		return nil, fmt.Errorf("write the manifest: %w", err)
	}
	if err := b.entry(manifestName, text); err != nil {
		return nil, err
	}
	if err := errors.Join(b.tar.Close(), zipped.Close()); err != nil {
		return nil, fmt.Errorf("write the backup: %w", err)
	}
	return b.manifest, nil
}

type backup struct {
	tar      *tar.Writer
	manifest *manifest
	piece    bytes.Buffer
	pieces   int
}

func (b *backup) entry(name string, data []byte) error {
	return b.stream(name, int64(len(data)), bytes.NewReader(data))
}

func (b *backup) stream(name string, size int64, r io.Reader) error {
	err := b.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, Typeflag: tar.TypeReg, Format: tar.FormatPAX})
	if err == nil {
		_, err = io.CopyN(b.tar, r, size)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func (b *backup) rows(ctx context.Context, cfg *config.Config) error {
	err := dump(ctx, cfg, func(l sqlstore.Line) error {
		if err := b.manifest.count(&l); err != nil {
			return err
		}
		if err := json.NewEncoder(&b.piece).Encode(l); err != nil {
			return fmt.Errorf("write a row: %w", err)
		}
		if b.piece.Len() < rowsPiece {
			return nil
		}
		return b.endPiece()
	})
	if err != nil {
		return err
	}
	return b.endPiece()
}

func (b *backup) endPiece() error {
	if b.piece.Len() == 0 {
		return nil
	}
	b.pieces++
	err := b.entry(fmt.Sprintf("%s%06d.jsonl", rowsDir, b.pieces), b.piece.Bytes())
	b.piece.Reset()
	return err
}

func (b *backup) blobs(ctx context.Context, blobs blob.Store) error {
	return blobs.Walk(ctx, func(info blob.Info) error {
		open, size, err := blobs.Open(ctx, info.Digest)
		if fault.Is(err, fault.NotFound) {
			return nil // it went meanwhile, so nothing of ours refers to it
		}
		if err != nil {
			return err
		}
		defer func() { _ = open.Close() }()
		b.manifest.Blobs++
		b.manifest.Bytes += size
		return b.stream(blobsDir+info.Digest, size, open)
	})
}

// keys are the secrets that were made at first start, and the manager's name.
func (b *backup) keys(cfg *config.Config) error {
	found, err := os.ReadDir(cfg.KeyDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read keys: %w", err)
	}
	for _, f := range found {
		if !f.Type().IsRegular() || strings.HasPrefix(f.Name(), ".") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(cfg.KeyDir(), f.Name()))
		if err != nil {
			return fmt.Errorf("read keys: %w", err)
		}
		b.manifest.Keys++
		if err := b.entry(keysDir+f.Name(), data); err != nil {
			return err
		}
	}
	return nil
}

// restore fills an empty installation from a backup, and checks it against the
// manifest and what then is there.
func restore(ctx context.Context, cfg *config.Config, r io.Reader, log *slog.Logger) (*manifest, error) {
	zipped, err := gzip.NewReader(bufio.NewReader(r))
	if err != nil {
		return nil, fault.New(fault.Invalid, "this is no backup: %w", err)
	}
	in := &restorer{cfg: cfg, tar: tar.NewReader(zipped), got: newManifest()}
	if err := in.advance(); err != nil {
		return nil, err
	}
	if err := load(ctx, cfg, log, in.line); err != nil {
		return nil, err
	}
	blobs, closer, err := openBlobs(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = closer.Close() }()
	want, err := in.rest(ctx, blobs)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, zipped); err != nil { // its checksum comes last
		return nil, fault.New(fault.Invalid, "the backup is damaged: %w", err)
	}
	there := newManifest()
	there.Blobs, there.Bytes = in.got.Blobs, in.got.Bytes
	if err := dump(ctx, cfg, func(l sqlstore.Line) error { return there.count(&l) }); err != nil {
		return nil, err
	}
	if what := want.differs(there); what != "" {
		return nil, fault.New(fault.Internal, "the restored copy is not what was saved: %s", what)
	}
	return want, nil
}

type restorer struct {
	cfg   *config.Config
	tar   *tar.Reader
	entry *tar.Header   // nil at the end
	piece *json.Decoder // of the current piece of rows
	got   *manifest
}

// advance goes to the next entry.
func (in *restorer) advance() error {
	h, err := in.tar.Next()
	if errors.Is(err, io.EOF) {
		in.entry = nil
		return nil
	}
	if err != nil {
		return fault.New(fault.Invalid, "the backup is damaged: %w", err)
	}
	if h.Typeflag != tar.TypeReg {
		return fault.New(fault.Invalid, "the backup is damaged: %q is no file", h.Name)
	}
	in.entry, in.piece = h, nil
	return nil
}

// line returns the next row, and io.EOF behind the last.
func (in *restorer) line() (l sqlstore.Line, err error) {
	for in.entry != nil && strings.HasPrefix(in.entry.Name, rowsDir) {
		if in.entry.Size > maxPiece {
			return l, fault.New(fault.Invalid, "the backup is damaged: a piece of rows has %d bytes", in.entry.Size)
		}
		if in.piece == nil {
			in.piece = json.NewDecoder(in.tar)
		}
		err := in.piece.Decode(&l)
		if err == nil {
			return l, in.got.count(&l)
		}
		if !errors.Is(err, io.EOF) {
			return l, fault.New(fault.Invalid, "the backup is damaged: %w", err)
		}
		if err := in.advance(); err != nil {
			return l, err
		}
	}
	return l, io.EOF
}

// rest takes the blobs and the keys, and returns the manifest.
func (in *restorer) rest(ctx context.Context, blobs blob.Store) (*manifest, error) {
	for in.entry != nil {
		name := in.entry.Name
		switch {
		case strings.HasPrefix(name, blobsDir):
			if err := blobs.Put(ctx, strings.TrimPrefix(name, blobsDir), in.entry.Size, in.tar); err != nil {
				return nil, fmt.Errorf("restore %s: %w", name, err)
			}
			in.got.Blobs++
			in.got.Bytes += in.entry.Size
		case strings.HasPrefix(name, keysDir):
			if err := in.key(strings.TrimPrefix(name, keysDir)); err != nil {
				return nil, err
			}
		case name == manifestName:
			return in.manifest()
		default:
			return nil, fault.New(fault.Invalid, "the backup is damaged: nobody knows what %q is", name)
		}
		if err := in.advance(); err != nil {
			return nil, err
		}
	}
	return nil, fault.New(fault.Invalid, "the backup is damaged: its end is missing")
}

func (in *restorer) key(name string) error {
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") || in.entry.Size > maxKey {
		return fault.New(fault.Invalid, "the backup is damaged: %q is no key", name)
	}
	data, err := io.ReadAll(in.tar)
	if err != nil {
		return fmt.Errorf("restore a key: %w", err)
	}
	return writeSecret(filepath.Join(in.cfg.KeyDir(), name), strings.TrimSuffix(string(data), "\n"))
}

func (in *restorer) manifest() (*manifest, error) {
	var want manifest
	if err := json.NewDecoder(io.LimitReader(in.tar, maxPiece)).Decode(&want); err != nil {
		return nil, fault.New(fault.Invalid, "the backup is damaged: %w", err)
	}
	if want.Version != 1 {
		return nil, fault.New(fault.Conflict, "the backup has version %d, and this program knows version 1", want.Version)
	}
	if what := want.differs(in.got); what != "" {
		return nil, fault.New(fault.Invalid, "the backup is damaged: %s", what)
	}
	return &want, nil
}
