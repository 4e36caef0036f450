package evidence

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Left is a file that a job left to be kept as an artifact. Data holds its
// bytes where it is small.
type Left struct {
	Artifact
	Data []byte
}

// Collect lists the regular files below one folder of a workspace, named as
// they are in the workspace, at most most of them, and says how many more there
// are. Files of up to small bytes come with their bytes. A folder that is not
// there, or is no folder, holds nothing.
func Collect(ctx context.Context, dir, sub string, b Bounds, most int, small int64) (all []Left, more int, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, 0, fmt.Errorf("open workspace: %w", err)
	}
	defer func() { _ = root.Close() }()
	if info, err := root.Lstat(sub); err != nil || !info.IsDir() {
		return nil, 0, nil //nolint:nilerr // there is nothing to collect
	}
	below, err := root.OpenRoot(sub)
	if err != nil {
		return nil, 0, fmt.Errorf("open %s: %w", sub, err)
	}
	defer func() { _ = below.Close() }()
	_, err = walk(ctx, below, b, func(n node, content *os.File) error {
		if n.kind != file {
			return nil
		}
		if len(all) >= most {
			more++
			return nil
		}
		l, err := collect(ctx, n, content, small)
		if err != nil {
			return fmt.Errorf("read %s: %w", printable(n.path), err)
		}
		l.Name = path.Join(sub, n.path)
		all = append(all, l)
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("collect artifacts: %w", err)
	}
	return all, more, nil
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

// OpenLeft opens a file that Collect has listed. It follows no link at its end,
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
