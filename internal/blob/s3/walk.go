package s3

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/aurea-dev/aurea/internal/blob"
)

// leftFor is how long what a crash left is let be.
const leftFor = 24 * time.Hour

// Walk implements blob.Store. It goes through blobs and notes side by side, both
// in the order of their names, and then removes what crashes have left.
func (s *Store) Walk(ctx context.Context, see func(blob.Info) error) error {
	next, stop := iter.Pull(s.list(ctx, wanted, 0))
	defer stop()
	note, more := next()
	for o := range s.list(ctx, blobs, 0) {
		if o.Err != nil {
			return s.wrong("list blobs", o.Err)
		}
		digest := strings.TrimPrefix(o.Key, s.prefix+blobs)
		if blob.CheckDigest(digest) != nil {
			continue // nothing of ours
		}
		at := o.LastModified
		for ; more; note, more = next() {
			if note.Err != nil {
				return s.wrong("list blobs", note.Err)
			}
			of := strings.TrimPrefix(note.Key, s.prefix+wanted)
			if of == digest && note.LastModified.After(at) {
				at = note.LastModified
			}
			if of >= digest {
				break
			}
			s.dropOld(ctx, note) // of a blob that is gone
		}
		if err := see(blob.Info{Digest: digest, Bytes: o.Size, Wanted: at}); err != nil {
			return err
		}
	}
	s.tidy(ctx)
	return nil
}

// list goes through objects of one kind whose names begin so, in their order.
// most bounds how many are asked for at a time; 0 is as many as the bucket gives.
func (s *Store) list(ctx context.Context, kind string, most int) iter.Seq[minio.ObjectInfo] {
	return s.core.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix + kind, Recursive: true, MaxKeys: most})
}

// tidy removes what crashes have left: parts of blobs, and marks of removals.
// What it cannot remove stays for the next time.
func (s *Store) tidy(ctx context.Context) {
	for o := range s.list(ctx, removing, 0) {
		if o.Err != nil {
			break
		}
		s.dropOld(ctx, o)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil) // ends the listing
	for up := range s.core.ListIncompleteUploads(ctx, s.bucket, s.prefix+blobs, true) {
		if up.Err != nil {
			s.log.Debug("list unfinished uploads", "bucket", s.name, "error", up.Err)
			return
		}
		if time.Since(up.Initiated) < leftFor {
			continue
		}
		if err := s.core.AbortMultipartUpload(ctx, s.bucket, up.Key, up.UploadID); err != nil {
			s.log.Warn("parts of a blob stay in the bucket", "bucket", s.name, "error", err)
		}
	}
}

// dropOld removes a mark that nobody needs.
func (s *Store) dropOld(ctx context.Context, o minio.ObjectInfo) {
	if time.Since(o.LastModified) < leftFor {
		return
	}
	if err := s.drop(ctx, strings.TrimPrefix(o.Key, s.prefix)); err != nil {
		s.log.Warn("a mark stays in the bucket", "bucket", s.name, "error", err)
	}
}
