package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/fault"
)

// partBytes is how much of a blob lies in one row.
const partBytes = 1 << 20

// Blobs keeps blobs in the database, where every manager reaches them.
type Blobs struct{ store *Store }

var _ blob.Store = (*Blobs)(nil)

// Blobs returns the blobs of this database. They end with the Store.
func (s *Store) Blobs() *Blobs { return &Blobs{store: s} }

// Has implements blob.Store.
func (b *Blobs) Has(ctx context.Context, digest string) (bool, error) {
	_, there, err := b.size(ctx, digest)
	return there, err
}

const (
	// blobWant notes that a blob is wanted, now and then, and tells its size.
	blobWant   = `UPDATE blob SET wanted = GREATEST(wanted, $2) WHERE digest = $1 AND wanted < $3`
	blobSize   = `SELECT size FROM blob WHERE digest = $1`
	blobRemove = `WITH gone AS (DELETE FROM blob WHERE digest = $1 AND wanted < $2 RETURNING digest)
		DELETE FROM blob_part WHERE digest IN (SELECT digest FROM gone) AND part >= 0`
	blobPage = `SELECT digest, size, wanted FROM blob WHERE digest > $1 ORDER BY digest LIMIT 1000`
)

// size returns the size of a blob, if it is there, and notes that it is wanted.
func (b *Blobs) size(ctx context.Context, digest string) (size int64, there bool, err error) {
	if err := blob.CheckDigest(digest); err != nil {
		return 0, false, err
	}
	if digest == blob.Empty {
		return 0, true, nil
	}
	err = b.store.borrow(ctx, func(c *conn) error {
		now := time.Now()
		c.add(statement{query: blobWant, args: []any{digest, now.UnixMicro(), now.Add(-time.Minute).UnixMicro()}})
		c.add(statement{query: blobSize, args: []any{digest}, scan: func(rows pgx.Rows) error {
			for rows.Next() {
				there = true
				if err := rows.Scan(&size); err != nil {
					return fmt.Errorf("read the answer: %w", err)
				}
			}
			return rows.Err()
		}})
		return c.flush(context.WithoutCancel(ctx))
	})
	if err != nil {
		return 0, false, fmt.Errorf("look for a blob: %w", err)
	}
	return size, there, nil
}

// Put implements blob.Store. A part is sent while the next is read, and all are
// one transaction: another Put of the same blob waits for it, and then finds
// what it wanted.
func (b *Blobs) Put(ctx context.Context, digest string, size int64, r io.Reader) error {
	_, there, err := b.size(ctx, digest)
	if err != nil || there {
		return err
	}
	// Bytes of the network come as slowly as they like, and a transaction that
	// waits for them would be ended: what is small is read before.
	var first []byte
	sum := sha256.New()
	if first, err = readPart(r, sum); err != nil {
		return err
	}
	err = b.store.borrow(ctx, func(c *conn) error {
		free := context.WithoutCancel(ctx)
		c.add(statement{query: "BEGIN"})
		c.add(statement{query: "SET LOCAL idle_in_transaction_session_timeout = '5min'"})
		err := b.put(free, c, digest, size, first, r, sum)
		if err != nil && c.c != nil && !c.c.IsClosed() {
			c.pending = nil
			c.add(statement{query: "ROLLBACK"})
			if c.flush(free) != nil {
				c.close(free)
			}
		}
		return err
	})
	if err != nil && fault.KindOf(err) == fault.Internal {
		return fmt.Errorf("put a blob: %w", err)
	}
	return err
}

func (b *Blobs) put(ctx context.Context, c *conn, digest string, size int64, part []byte, r io.Reader, sum hash.Hash) (err error) {
	added := true
	c.add(statement{query: `INSERT INTO blob (digest, size, wanted) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING size`, args: []any{digest, size, time.Now().UnixMicro()}, scan: func(rows pgx.Rows) error {
		added = rows.Next()
		rows.Close()
		return rows.Err()
	}})
	if err := c.flush(ctx); err != nil {
		return err
	}
	if !added { // somebody was faster
		c.add(statement{query: "ROLLBACK"})
		return c.flush(ctx)
	}
	var total int64
	for n := 0; len(part) > 0; n++ {
		if total += int64(len(part)); total > size {
			break
		}
		c.add(statement{query: `INSERT INTO blob_part (digest, part, data) VALUES ($1, $2, $3)`, args: []any{digest, n, part}})
		if err := c.flush(ctx); err != nil {
			return err
		}
		if part, err = readPart(r, sum); err != nil {
			return err
		}
	}
	if total != size || hex.EncodeToString(sum.Sum(nil)) != digest {
		return fault.New(fault.Invalid, "the bytes do not have the size and the digest that they came with").WithCode("digest_mismatch")
	}
	c.add(statement{query: "COMMIT"})
	return c.flush(ctx)
}

// readPart reads the next part; none is the end.
func readPart(r io.Reader, sum hash.Hash) ([]byte, error) {
	part := make([]byte, partBytes)
	n, err := io.ReadFull(r, part)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	sum.Write(part[:n])
	return part[:n], nil
}

// Open implements blob.Store.
func (b *Blobs) Open(ctx context.Context, digest string) (blob.Blob, int64, error) {
	size, there, err := b.size(ctx, digest)
	if err != nil {
		return nil, 0, err
	}
	if !there {
		return nil, 0, fault.New(fault.NotFound, "there is no blob %s", digest)
	}
	parts := &parts{store: b.store, ctx: context.WithoutCancel(ctx), digest: digest, size: size, at: -1}
	return opened{io.NewSectionReader(parts, 0, size)}, size, nil
}

// Walk implements blob.Store.
func (b *Blobs) Walk(ctx context.Context, see func(blob.Info) error) error {
	for after := ""; ; {
		var page []blob.Info
		err := b.store.borrow(ctx, func(c *conn) error {
			c.add(statement{query: blobPage, args: []any{after}, scan: func(rows pgx.Rows) error {
				for rows.Next() {
					var one blob.Info
					var wanted int64
					if err := rows.Scan(&one.Digest, &one.Bytes, &wanted); err != nil {
						return fmt.Errorf("read the answer: %w", err)
					}
					one.Wanted = time.UnixMicro(wanted)
					page = append(page, one)
				}
				return rows.Err()
			}})
			return c.flush(context.WithoutCancel(ctx))
		})
		if err != nil {
			return fmt.Errorf("list blobs: %w", err)
		}
		for _, one := range page {
			if err := see(one); err != nil {
				return err
			}
			after = one.Digest
		}
		if len(page) == 0 {
			return nil
		}
	}
}

// Remove implements blob.Store. A blob that was opened is wanted, and so is not
// removed while it is read.
func (b *Blobs) Remove(ctx context.Context, digest string, since time.Time) (removed bool, err error) {
	if err := blob.CheckDigest(digest); err != nil {
		return false, err
	}
	err = b.store.borrow(ctx, func(c *conn) error {
		c.add(statement{query: blobRemove, args: []any{digest, since.UnixMicro()}, scan: func(rows pgx.Rows) error {
			rows.Close()
			removed = rows.CommandTag().RowsAffected() > 0
			return rows.Err()
		}})
		return c.flush(context.WithoutCancel(ctx))
	})
	if err != nil {
		return false, fmt.Errorf("remove a blob: %w", err)
	}
	return removed, nil
}

// opened is an open blob. It holds nothing of the database.
type opened struct{ *io.SectionReader }

func (opened) Close() error { return nil }

// parts reads a blob part by part, and keeps the last that it read.
type parts struct {
	store  *Store
	ctx    context.Context //nolint:containedctx // io.ReaderAt has none
	digest string
	size   int64
	at     int64 // the part that is kept
	data   []byte
}

// ReadAt implements io.ReaderAt.
func (p *parts) ReadAt(to []byte, off int64) (n int, err error) {
	for n < len(to) && off < p.size {
		if err := p.load(off / partBytes); err != nil {
			return n, err
		}
		got := copy(to[n:], p.data[off%partBytes:])
		n, off = n+got, off+int64(got)
	}
	if n < len(to) {
		return n, io.EOF
	}
	return n, nil
}

func (p *parts) load(part int64) error {
	if p.at == part {
		return nil
	}
	var data []byte
	err := p.store.borrow(p.ctx, func(c *conn) error {
		c.add(statement{query: `SELECT data FROM blob_part WHERE digest = $1 AND part = $2`, args: []any{p.digest, part}, scan: func(rows pgx.Rows) error {
			for rows.Next() {
				if err := rows.Scan(&data); err != nil {
					return fmt.Errorf("read the answer: %w", err)
				}
			}
			return rows.Err()
		}})
		return c.flush(p.ctx)
	})
	if err != nil {
		return fmt.Errorf("read a blob: %w", err)
	}
	if want := min(partBytes, p.size-part*partBytes); int64(len(data)) != want {
		return fault.New(fault.Internal, "part %d of the blob %s is damaged", part, p.digest)
	}
	p.at, p.data = part, bytes.Clone(data)
	return nil
}

// borrow lends a connection for something short, outside of any transaction.
func (s *Store) borrow(ctx context.Context, fn func(*conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case c := <-s.spare:
		defer func() { s.spare <- c }()
		if err := c.dial(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		return fn(c)
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return errClosed
	}
}
