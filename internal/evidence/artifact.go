package evidence

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
)

// ArtifactBounds hold what the artifacts of one run may cost us.
type ArtifactBounds struct {
	Count     int   // artifacts that are taken
	FileBytes int64 // of one of them
	Bytes     int64 // of all of them together
	// Entries and Stream bound what is looked at: a program can leave any
	// number of files that are not taken, and files of any size.
	Entries int
	Stream  int64
}

// DefaultArtifactBounds let the artifacts of a run travel in one answer.
func DefaultArtifactBounds() ArtifactBounds {
	return ArtifactBounds{Count: 100, FileBytes: 1 << 20, Bytes: 8 << 20, Entries: 10_000, Stream: 64 << 20}
}

// CollectArtifacts reads the tar stream of a folder that a program in a sandbox
// has filled, and returns its regular files by their path in that folder.
// Everything else is skipped and listed with the reason: links of either kind,
// FIFOs, devices, names that are no plain text or lead elsewhere, files beyond
// the bounds. A file is taken whole or not at all. Where the stream itself goes
// beyond its bounds the rest of it is not read, and the list says so: that is no
// error. A broken stream is a fault of kind Invalid; what came before it is
// returned beside it, as it is when ctx ends.
//
// It reads r to its end, or to a bound: then the caller has to stop the writer.
func CollectArtifacts(ctx context.Context, r io.Reader, b ArtifactBounds) (map[string]run.Artifact, []string, error) {
	limited := &ending{r: &pausing{ctx, r}, left: b.Stream}
	c := artifacts{bounds: b, taken: map[string]run.Artifact{}}
	err := c.collect(tar.NewReader(limited))
	switch {
	case errors.Is(err, errEnding):
		c.rest = fmt.Sprintf("the rest: the folder holds more than the %d bytes that are looked at", b.Stream)
		err = nil
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil && c.rest == "":
		// A tar may be filled up behind its end, but not for ever.
		const filling = 1 << 20
		_, _ = io.Copy(io.Discard, io.LimitReader(limited, filling))
	}
	if len(c.taken) == 0 {
		c.taken = nil
	}
	return c.taken, c.left(), err
}

// artifacts is one collection under way.
type artifacts struct {
	bounds  ArtifactBounds
	entries int
	bytes   int64
	taken   map[string]run.Artifact
	skipped skips
	more    int    // files beyond the count; each of them by name says nothing
	rest    string // what is said of a stream that was left before its end
}

// left is what was not taken, and why.
func (c *artifacts) left() []string {
	all := c.skipped.all()
	if c.more > 0 {
		all = append(all, fmt.Sprintf("%d more: at most %d artifacts are taken", c.more, c.bounds.Count))
	}
	if c.rest != "" {
		all = append(all, c.rest)
	}
	return all
}

func (c *artifacts) collect(stream *tar.Reader) error {
	for {
		h, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			if c.entries++; c.entries > c.bounds.Entries {
				c.rest = fmt.Sprintf("the rest: the folder holds more than the %d entries that are looked at", c.bounds.Entries)
				return nil
			}
			err = c.entry(h, stream)
		}
		if err != nil {
			if errors.Is(err, errEnding) {
				return err
			}
			return broken(err)
		}
	}
}

func (c *artifacts) entry(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeDir {
		return nil // its files are entries of their own
	}
	name, why := artifactName(h.Name)
	_, twice := c.taken[name]
	switch {
	case why != "":
	case twice:
		why = "a second entry of this name"
	case h.Typeflag == tar.TypeSymlink:
		why = "a symbolic link"
	case h.Typeflag != tar.TypeReg:
		why = typeWord(h.Typeflag)
	case h.Size < 0 || h.Size > c.bounds.FileBytes:
		why = fmt.Sprintf("larger than %d bytes", c.bounds.FileBytes)
	case len(c.taken) >= c.bounds.Count:
		c.more++
		return nil
	case h.Size > c.bounds.Bytes-c.bytes:
		why = fmt.Sprintf("the artifacts are larger than %d bytes together", c.bounds.Bytes)
	}
	if why != "" {
		c.skipped.add(h.Name, why)
		return nil
	}
	data := make([]byte, h.Size)
	if _, err := io.ReadFull(content, data); err != nil {
		return fmt.Errorf("read %s: %w", printable(name), err)
	}
	sum := sha256.Sum256(data)
	c.bytes += h.Size
	c.taken[name] = run.Artifact{Data: data, SHA256: hex.EncodeToString(sum[:])}
	return nil
}

// artifactName is the name under which an entry is handed out, or why it can
// have none. It becomes a key of an answer and perhaps a path on somebody's
// disk, of any system.
func artifactName(name string) (clean, why string) {
	clean, why = cleanName(name)
	if why != "" {
		return "", why
	}
	if clean == "." {
		return "", "not a name"
	}
	if !utf8.ValidString(clean) {
		return "", "the name is not UTF-8"
	}
	if strings.ContainsRune(clean, '\\') || strings.ContainsFunc(clean, func(c rune) bool {
		return unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c) || c == '\u2028' || c == '\u2029'
	}) {
		return "", "the name has characters that are not taken"
	}
	return clean, ""
}

// errEnding is the end of what is looked at of a stream.
var errEnding = fault.New(fault.TooLarge, "the stream is longer than what is looked at")

// ending fails when more than left is read.
type ending struct {
	r    io.Reader
	left int64
}

func (e *ending) Read(p []byte) (int, error) {
	if e.left <= 0 {
		return 0, errEnding
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	return n, err
}
