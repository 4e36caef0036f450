package worker

import (
	"context"
	"io"
	"net"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// PutFiles unpacks a tar stream in a sandbox.
func (rc receiver) PutFiles(ctx context.Context, id, dir string, tar io.Reader) error {
	if err := dispatch.CheckSandboxPath("path", dir); err != nil {
		return err
	}
	_, box, err := rc.run.hosted.usable(ctx, id)
	if err != nil {
		return err
	}
	return box.Put(ctx, dir, tar)
}

// GetFiles packs what is in a sandbox.
func (rc receiver) GetFiles(ctx context.Context, id, path string, w io.Writer) error {
	if err := dispatch.CheckSandboxPath("path", path); err != nil {
		return err
	}
	_, box, err := rc.run.hosted.usable(ctx, id)
	if err != nil {
		return err
	}
	return box.Get(ctx, path, w)
}

// DialSandbox connects to a port in a sandbox.
func (rc receiver) DialSandbox(ctx context.Context, id string, port uint16) (net.Conn, error) {
	if port == 0 {
		return nil, fault.Field("port", "must be from 1 to 65535")
	}
	_, box, err := rc.run.hosted.usable(ctx, id)
	if err != nil {
		return nil, err
	}
	return box.Dial(ctx, port)
}

// Files are the files of a sandbox.
func (rc receiver) Files(id string) sandbox.Filer { return keptFiles{hosted: rc.run.hosted, id: id} }

// keptFiles are the files of a sandbox that is kept, whichever driver's sandbox
// it is at the moment of a call.
type keptFiles struct {
	hosted *hosted
	id     string
}

// use calls fn with the files of the sandbox.
func (f keptFiles) use(ctx context.Context, fn func(sandbox.Filer) error, paths ...string) error {
	for _, p := range paths {
		if err := sandbox.CheckPath("path", p); err != nil {
			return err
		}
	}
	_, box, err := f.hosted.usable(ctx, f.id)
	if err != nil {
		return err
	}
	files, err := box.Files()
	if err != nil {
		return err
	}
	return fn(files)
}

// Stat implements sandbox.Filer.
func (f keptFiles) Stat(ctx context.Context, path string) (info sandbox.FileInfo, err error) {
	err = f.use(ctx, func(files sandbox.Filer) (err error) { info, err = files.Stat(ctx, path); return err }, path)
	return info, err
}

// List implements sandbox.Filer.
func (f keptFiles) List(ctx context.Context, path string, depth, most int) (found []sandbox.FileInfo, more bool, err error) {
	err = f.use(ctx, func(files sandbox.Filer) (err error) {
		found, more, err = files.List(ctx, path, depth, most)
		return err
	}, path)
	return found, more, err
}

// ReadFile implements sandbox.Filer.
func (f keptFiles) ReadFile(ctx context.Context, path string, offset, length int64, w io.Writer) (info sandbox.FileInfo, err error) {
	err = f.use(ctx, func(files sandbox.Filer) (err error) {
		info, err = files.ReadFile(ctx, path, offset, length, w)
		return err
	}, path)
	return info, err
}

// WriteFile implements sandbox.Filer.
func (f keptFiles) WriteFile(ctx context.Context, path string, mode uint32, body io.Reader) (info sandbox.FileInfo, err error) {
	err = f.use(ctx, func(files sandbox.Filer) (err error) { info, err = files.WriteFile(ctx, path, mode, body); return err }, path)
	return info, err
}

// Mkdir implements sandbox.Filer.
func (f keptFiles) Mkdir(ctx context.Context, path string, mode uint32) error {
	return f.use(ctx, func(files sandbox.Filer) error { return files.Mkdir(ctx, path, mode) }, path)
}

// Move implements sandbox.Filer.
func (f keptFiles) Move(ctx context.Context, from, to string) error {
	return f.use(ctx, func(files sandbox.Filer) error { return files.Move(ctx, from, to) }, from, to)
}

// Copy implements sandbox.Filer.
func (f keptFiles) Copy(ctx context.Context, from, to string) error {
	return f.use(ctx, func(files sandbox.Filer) error { return files.Copy(ctx, from, to) }, from, to)
}

// Remove implements sandbox.Filer.
func (f keptFiles) Remove(ctx context.Context, path string, recursive bool) error {
	return f.use(ctx, func(files sandbox.Filer) error { return files.Remove(ctx, path, recursive) }, path)
}

// Watch implements sandbox.Filer.
func (f keptFiles) Watch(ctx context.Context, path string, recursive bool) (watch sandbox.Watch, err error) {
	err = f.use(ctx, func(files sandbox.Filer) (err error) { watch, err = files.Watch(ctx, path, recursive); return err }, path)
	return watch, err
}
