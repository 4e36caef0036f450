package evidence

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"time"
)

// Packed says what a reproducible tar is made of.
type Packed struct {
	SHA256     string // of the tar
	Bytes      int64  // of the tar
	TreeDigest string // of what is in it, without the prefix
	Skipped    []string
}

// Pack writes the folder as a reproducible tar below prefix: sorted names, one
// fixed time, nobody's ownership, two modes. Equal folders give equal bytes.
// The folder is hostile input; see walker.
func Pack(ctx context.Context, w io.Writer, dir, prefix string, b Bounds) (Packed, error) {
	return pack(ctx, w, dir, prefix, b, nil, newBuffer())
}

// buffer is what pack works with, and can work with again.
type buffer struct {
	out  *bufio.Writer
	file [packBuffer]byte
}

const packBuffer = 32 << 10

func newBuffer() *buffer { return &buffer{out: bufio.NewWriterSize(nil, packBuffer)} }

// pack is Pack with a survey on the way, where there is one.
func pack(ctx context.Context, w io.Writer, dir, prefix string, b Bounds, s *Survey, buf *buffer) (Packed, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Packed{}, fmt.Errorf("open workspace: %w", err)
	}
	defer func() { _ = root.Close() }()
	p := packer{ctx: ctx, sum: sha256.New(), tree: sha256.New(), prefix: prefix, survey: s, buf: buf.file[:]}
	out := buf.out
	out.Reset(io.MultiWriter(w, p.sum, &p.count))
	defer out.Reset(nil) // keep no file alive
	p.tar = tar.NewWriter(out)
	io.WriteString(p.tree, "aurea tree 1\n") //nolint:errcheck // a hash cannot fail
	if err := p.header(node{kind: folder, mode: 0o755}); err != nil {
		return Packed{}, err
	}
	skipped, err := walk(ctx, root, b, p.add)
	if err != nil {
		return Packed{}, fmt.Errorf("pack workspace: %w", err)
	}
	if err := p.tar.Close(); err != nil {
		return Packed{}, fmt.Errorf("end tar: %w", err)
	}
	if err := out.Flush(); err != nil {
		return Packed{}, fmt.Errorf("write tar: %w", err)
	}
	return Packed{
		SHA256: hex.EncodeToString(p.sum.Sum(nil)), Bytes: int64(p.count),
		TreeDigest: "sha256:" + hex.EncodeToString(p.tree.Sum(nil)), Skipped: skipped,
	}, nil
}

type packer struct {
	ctx    context.Context // of this one walk
	tar    *tar.Writer
	sum    hash.Hash
	count  counter
	tree   hash.Hash
	prefix string
	survey *Survey
	buf    []byte
}

// add writes one node to the tar and to the digest of the tree. A line of the
// digest gives the length of each text before the text, so that no name can
// pretend to be two lines.
func (p *packer) add(n node, content io.ReadSeeker) error {
	if p.survey != nil {
		if err := p.survey.visit(p.ctx, n, content); err != nil {
			return err
		}
	}
	if err := p.header(n); err != nil {
		return err
	}
	digest := ""
	if n.kind == file {
		sum, err := p.content(content, n.size)
		if err != nil {
			return fmt.Errorf("pack %s: %w", printable(n.path), err)
		}
		digest = sum
	}
	fmt.Fprintf(p.tree, "%c %o %d %s %d:%s %d:%s\n", n.kind, n.mode, n.size, digest, len(n.path), n.path, len(n.target), n.target)
	return nil
}

func (p *packer) header(n node) error {
	h := &tar.Header{Name: p.prefix + "/", Mode: n.mode, ModTime: time.Unix(0, 0), Typeflag: tar.TypeDir}
	switch n.kind {
	case folder:
		if n.path != "" {
			h.Name += n.path + "/"
		}
	case file:
		h.Typeflag, h.Size = tar.TypeReg, n.size
		h.Name += n.path
	case link:
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, n.target, 0o777
		h.Name += n.path
	}
	if err := p.tar.WriteHeader(h); err != nil {
		return fmt.Errorf("write tar header of %s: %w", printable(n.path), err)
	}
	return nil
}

// content copies exactly size bytes: a file that grew is cut, one that shrank
// is filled with zeros, because the header has promised the size.
func (p *packer) content(f io.Reader, size int64) (string, error) {
	if size == 0 {
		return emptySHA256, nil
	}
	sum := sha256.New()
	ended := false
	for left := size; left > 0; {
		if p.ctx.Err() != nil {
			return "", context.Cause(p.ctx)
		}
		part := p.buf[:min(left, int64(len(p.buf)))]
		n := 0
		if !ended {
			var err error
			if n, err = io.ReadFull(f, part); err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // ReadFull returns them bare
				ended = true
			} else if err != nil {
				return "", err
			}
		}
		clear(part[n:])
		sum.Write(part)
		if _, err := p.tar.Write(part); err != nil {
			return "", err
		}
		left -= int64(len(part))
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
