// Package s3 keeps blobs in a bucket of Amazon S3, or of any server that speaks
// its protocol, where every manager reaches them.
//
// A blob is one object under its digest. Beside the blobs lie marks, which are
// empty objects: that a blob is wanted, since an object's time cannot be moved,
// and that one is being removed, so that nobody is told of a blob that then
// goes. It relies on what S3 promises: an object appears whole or not at all,
// and whoever reads after a write sees it.
package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/fault"
)

// Store keeps blobs in a bucket.
type Store struct {
	core   *minio.Core
	bucket string
	prefix string // "" or it ends with a slash
	name   string // of the bucket, for people
	log    *slog.Logger
	token  string // that is sent with each request; "" is none, or one of a file
	idle   func() // closes connections that nobody uses
}

var _ blob.Store = (*Store)(nil)

// Kinds of objects.
const (
	blobs    = "blob/"
	wanted   = "wanted/"
	removing = "removing/"
)

const (
	// noteEvery bounds how often it is noted that a blob is wanted.
	noteEvery = time.Minute
	// skew is how far the bucket's clock may be from ours; S3 refuses who is
	// further off. Times of objects are of its clock.
	skew = 15 * time.Minute
	// removeTime is how long a removal takes at most. A mark of one that stands
	// for twice as long is that of somebody who died.
	removeTime = 20 * time.Second
)

// Open connects to the bucket. It fails when the bucket refuses us; one that is
// away for the moment is asked again by whoever needs it.
func Open(ctx context.Context, c Config) (*Store, error) {
	s, err := connect(c)
	if err != nil {
		return nil, err
	}
	if err := s.Check(ctx); fault.Is(err, fault.Unavailable) {
		s.log.Warn("the bucket of the blobs is away", "bucket", s.name, "error", err)
	} else if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Reach says whether a bucket can be reached.
func Reach(ctx context.Context, c Config) error {
	s, err := connect(c)
	if err != nil {
		return err
	}
	return errors.Join(s.Check(ctx), s.Close())
}

// Close lets go of idle connections.
func (s *Store) Close() error {
	s.idle()
	return nil
}

// Check says whether the bucket can be reached and listed. A fault of kind
// Unavailable may pass, any other is a matter of settings.
func (s *Store) Check(ctx context.Context) error {
	there, err := s.core.BucketExists(ctx, s.bucket)
	if err == nil && !there {
		return fault.New(fault.Invalid, "there is no bucket %s, or these credentials may not see it", s.name).WithCode("no_bucket")
	}
	for o := range s.list(ctx, blobs, 1) {
		err = errors.Join(err, o.Err)
		break
	}
	return s.wrong("reach the bucket "+s.name, err)
}

// Has implements blob.Store.
func (s *Store) Has(ctx context.Context, digest string) (bool, error) {
	if err := blob.CheckDigest(digest); err != nil {
		return false, err
	}
	if digest == blob.Empty {
		return true, nil
	}
	there, err := s.want(ctx, digest)
	return there, s.wrong("look for a blob", err)
}

// want looks for a blob, and notes that it is wanted. Whoever removes it at the
// same time marks that first and looks for our note then, and we note first and
// look for his mark then: one sees the other.
func (s *Store) want(ctx context.Context, digest string) (bool, error) {
	info, there, err := s.stat(ctx, blobs+digest)
	if err != nil || !there {
		return false, err
	}
	if time.Since(info.LastModified) < noteEvery { // nobody removes it
		return true, nil
	}
	note, noted, err := s.stat(ctx, wanted+digest)
	if err != nil {
		return false, err
	}
	if !noted || time.Since(note.LastModified) >= noteEvery {
		if err := s.mark(ctx, wanted+digest); err != nil {
			return false, err
		}
	}
	waited, err := s.settle(ctx, digest)
	if err != nil || !waited {
		return err == nil, err
	}
	_, there, err = s.stat(ctx, blobs+digest)
	return there, err
}

// settle waits until nobody removes the blob, and reports whether somebody did.
func (s *Store) settle(ctx context.Context, digest string) (waited bool, err error) {
	seen := map[string]time.Time{}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		busy := false
		for o := range s.list(ctx, removing+digest, 0) {
			if o.Err != nil {
				return waited, o.Err
			}
			if _, known := seen[o.Key]; !known {
				seen[o.Key] = time.Now()
			}
			if time.Since(seen[o.Key]) < 2*removeTime && time.Since(o.LastModified) < 2*removeTime+2*skew {
				busy = true
				continue
			}
			if err := s.drop(ctx, strings.TrimPrefix(o.Key, s.prefix)); err != nil {
				return waited, err
			}
		}
		if !busy {
			return waited || len(seen) > 0, nil
		}
		waited = true
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return waited, context.Cause(ctx)
		}
	}
}

// Remove implements blob.Store. Its mark comes first, so that who asks for the
// blob meanwhile waits for what becomes of it.
func (s *Store) Remove(ctx context.Context, digest string, since time.Time) (bool, error) {
	if err := blob.CheckDigest(digest); err != nil {
		return false, err
	}
	since = since.Add(-skew - noteEvery)
	if old, err := s.unwanted(ctx, digest, since); err != nil || !old {
		return false, s.wrong("remove a blob", err)
	}
	// Once begun it goes to its end, within its time.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	removed, err := s.remove(ctx, digest, since)
	return removed, s.wrong("remove a blob", err)
}

func (s *Store) remove(ctx context.Context, digest string, since time.Time) (removed bool, err error) {
	mine := removing + digest + "." + unique() // nobody else's end is mistaken for ours
	if err := s.mark(ctx, mine); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.drop(ctx, mine)) }()
	if old, err := s.unwanted(ctx, digest, since); err != nil || !old {
		return false, err
	}
	if err := s.drop(ctx, blobs+digest); err != nil {
		return false, err
	}
	return true, s.drop(ctx, wanted+digest)
}

// unwanted reports whether a blob is there that nobody has wanted since.
func (s *Store) unwanted(ctx context.Context, digest string, since time.Time) (bool, error) {
	for _, kind := range []string{blobs, wanted} {
		info, there, err := s.stat(ctx, kind+digest)
		switch {
		case err != nil:
			return false, err
		case !there && kind == blobs:
			return false, nil
		case there && !info.LastModified.Before(since):
			return false, nil
		}
	}
	return true, nil
}

// stat looks for an object.
func (s *Store) stat(ctx context.Context, name string) (minio.ObjectInfo, bool, error) {
	info, err := s.core.StatObject(ctx, s.bucket, s.prefix+name, minio.StatObjectOptions{})
	if absent(err) {
		return info, false, nil
	}
	return info, err == nil, err
}

// mark writes an empty object.
func (s *Store) mark(ctx context.Context, name string) error {
	return s.put(ctx, name, nil, blob.Empty)
}

// drop removes an object; one that is not there is removed.
func (s *Store) drop(ctx context.Context, name string) error {
	err := s.core.RemoveObject(ctx, s.bucket, s.prefix+name, minio.RemoveObjectOptions{})
	if absent(err) {
		return nil
	}
	return err
}

// absent reports whether an answer is that there is no such object.
func absent(err error) bool {
	answer, ok := errors.AsType[minio.ErrorResponse](err)
	return ok && answer.StatusCode == 404 && answer.Code != minio.NoSuchBucket
}

// wrong says what we were doing when something went wrong. What the bucket
// answered for good is told from what may pass.
func (s *Store) wrong(doing string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if s.token != "" {
		err = discreet{err, s.token}
	}
	answer, answered := errors.AsType[minio.ErrorResponse](err)
	switch {
	case answered && answer.StatusCode >= 400 && answer.StatusCode < 500 && answer.StatusCode != 408 && answer.StatusCode != 429:
		return fault.New(fault.Internal, "%s: the bucket %s answers %s: %w", doing, s.name, answer.Code, err).WithCode("blobs_refused")
	case errors.Is(err, context.Canceled), errors.Is(err, errInput):
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fault.New(fault.Unavailable, "%s: the bucket %s cannot be reached: %w", doing, s.name, err).WithCode("blobs_unavailable")
}

// discreet is an error without the token that we sent: a server that refuses it
// may say it again, and errors go into logs.
type discreet struct {
	error
	token string
}

func (d discreet) Error() string { return strings.ReplaceAll(d.error.Error(), d.token, "(hidden)") }

func (d discreet) Unwrap() error { return d.error }

// errInput is that what was to be stored could not be read.
var errInput = errors.New("read what is to be stored")

var _ io.Closer = (*Store)(nil)
