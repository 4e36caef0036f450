package evidence

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Left is a file that a job left to be kept as an artifact. Data holds its
// bytes where it is small.
type Left struct {
	Artifact
	Data []byte
}

func collect(ctx context.Context, n node, content io.Reader, small int64) (Left, error) {
	var l Left
	sum := sha256.New()
	if n.size <= small {
		data, err := io.ReadAll(io.LimitReader(content, small))
		if err != nil {
			return l, err
		}
		sum.Write(data)
		l.Data, l.Bytes = data, int64(len(data))
	} else {
		size, err := io.Copy(sum, io.LimitReader(&pausing{ctx, content}, n.size))
		if err != nil {
			return l, err
		}
		l.Bytes = size
	}
	l.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return l, nil
}

// OpenLeft opens a file that a survey has listed. It follows no link at its end,
// and is a fault of kind NotFound when there is no regular file.
func OpenLeft(dir, name string) (io.ReadCloser, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	defer func() { _ = root.Close() }()
	seen, err := root.Lstat(name)
	if err != nil {
		return nil, fmt.Errorf("open artifact: %w", err)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open artifact: %w", err)
	}
	now, err := f.Stat()
	if err == nil && (!now.Mode().IsRegular() || seen.Mode()&fs.ModeSymlink != 0 || !os.SameFile(seen, now)) {
		err = fault.New(fault.NotFound, "%s is no regular file", printable(name))
	}
	if err != nil {
		f.Close() //nolint:errcheck // nothing was written
		return nil, err
	}
	return f, nil
}
