package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Import takes an image from a file or a folder: what `docker save` writes, an
// OCI layout, packed or not, or a plain archive of a root. Each may be
// compressed. The image gets the name.
func (s *Store) Import(ctx context.Context, from, text string, progress Progress) (Record, error) {
	tag, err := ParseTag(text)
	if err != nil {
		return Record{}, err
	}
	said := "file " + filepath.Base(from)
	r, err := s.importFrom(ctx, from, tag, said, progress)
	if err != nil {
		return Record{}, fmt.Errorf("import %s: %w", tag, err)
	}
	return r, nil
}

func (s *Store) importFrom(ctx context.Context, from, tag, said string, progress Progress) (Record, error) {
	info, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, fault.New(fault.NotFound, "there is no %s", from)
	}
	if err != nil {
		return Record{}, err
	}
	if info.IsDir() {
		folder, err := os.OpenRoot(from)
		if err != nil {
			return Record{}, err
		}
		defer func() { _ = folder.Close() }()
		return s.importLayout(ctx, folderFiles{folder}, tag, said, progress)
	}
	f, err := os.Open(from)
	if err != nil {
		return Record{}, err
	}
	defer func() { _ = f.Close() }()
	return s.ImportArchive(ctx, f, tag, said, progress)
}

// ImportArchive is Import from a stream.
func (s *Store) ImportArchive(ctx context.Context, r io.Reader, text, said string, progress Progress) (Record, error) {
	tag, err := ParseTag(text)
	if err != nil {
		return Record{}, err
	}
	spool, err := s.aside()
	if err != nil {
		return Record{}, err
	}
	defer spool.drop()
	a, err := s.spool(ctx, r, spool.File, progress)
	if err != nil {
		return Record{}, err
	}
	switch {
	case a.has("manifest.json"):
		return s.importSaved(ctx, a, tag, said, progress)
	case a.has("oci-layout"):
		return s.importLayout(ctx, a, tag, said, progress)
	}
	return s.importRoot(ctx, a, tag, said, progress)
}

// spool unpacks an archive into a file of ours and finds what is in it.
func (s *Store) spool(ctx context.Context, r io.Reader, into *os.File, progress Progress) (*archive, error) {
	packed := &counter{r: patient{ctx, r}}
	z, err := unpacked(packed)
	if err != nil {
		return nil, err
	}
	defer func() { _ = z.Close() }()
	bounds := s.config.Bounds
	stream := &told{r: z, progress: progress, step: Step{Doing: "read"}}
	for {
		const piece = 64 << 20
		_, err := io.CopyN(into, stream, piece)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the archive: %w", err)
		}
		if stream.step.Done > bounds.Slack+packed.n*bounds.Ratio || stream.step.Done > 2*bounds.Bytes {
			return nil, tooMuch("the archive unpacks to far more than its size")
		}
	}
	return s.list(ctx, into, stream.step.Done)
}

// archive is a tar file whose files can be read in any order.
type archive struct {
	file  *os.File
	size  int64
	files map[string]span
	links map[string]string
}

type span struct{ at, size int64 }

// list finds the files that an image could be made of. Bounds hold here too:
// an archive may be a root with a million names, or no archive at all.
func (s *Store) list(ctx context.Context, f *os.File, size int64) (*archive, error) {
	a := &archive{file: f, size: size, files: map[string]span{}, links: map[string]string{}}
	at := &counter{r: io.NewSectionReader(f, 0, size)}
	t := tar.NewReader(seekless{at})
	for n, names := 0, 0; ; n++ {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return nil, tarError(err)
		}
		if names += len(h.Name) + len(h.Linkname); n > s.config.Bounds.Entries || int64(names) > s.config.Bounds.Names {
			return nil, tooMuch("the archive has more than %d entries", s.config.Bounds.Entries)
		}
		switch name := path.Clean("/" + h.Name); h.Typeflag {
		case tar.TypeReg, tar.TypeRegA: //nolint:staticcheck // old archives have the old type
			a.files[name] = span{at.n, h.Size}
		case tar.TypeSymlink:
			a.links[name] = path.Join(path.Dir(name), h.Linkname)
		case tar.TypeLink:
			a.links[name] = path.Clean("/" + h.Linkname)
		}
	}
}

// seekless hides that a reader could seek, so that what is read is counted.
type seekless struct{ io.Reader }

func (a *archive) has(name string) bool { _, ok := a.files["/"+name]; return ok }

// open opens a file of the archive. Old archives share layers by links.
func (a *archive) open(name string) (io.ReadCloser, int64, error) {
	name = path.Clean("/" + name)
	for range maxHops {
		if f, ok := a.files[name]; ok {
			return io.NopCloser(io.NewSectionReader(a.file, f.at, f.size)), f.size, nil
		}
		target, ok := a.links[name]
		if !ok {
			break
		}
		name = target
	}
	return nil, 0, hostile("the archive has no %q", name)
}

// importRoot makes an image of one layer from the archive of a root.
func (s *Store) importRoot(ctx context.Context, a *archive, tag, said string, progress Progress) (Record, error) {
	if len(a.files) == 0 && len(a.links) == 0 {
		return Record{}, hostile("the archive has no files in it")
	}
	return s.importLayers(ctx, []func() (io.ReadCloser, int64, error){
		func() (io.ReadCloser, int64, error) {
			return io.NopCloser(io.NewSectionReader(a.file, 0, a.size)), a.size, nil
		},
	}, func(contents []string) ([]byte, error) {
		var d document
		d.Architecture, d.OS = s.config.Architecture, "linux"
		d.Rootfs.Type, d.Rootfs.DiffIDs = "layers", contents
		return json.Marshal(d)
	}, tag, said, progress)
}

// importSaved takes what docker save wrote.
func (s *Store) importSaved(ctx context.Context, a *archive, tag, said string, progress Progress) (Record, error) {
	var saved []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := s.readDocument(a, "manifest.json", &saved); err != nil {
		return Record{}, err
	}
	if len(saved) != 1 {
		return Record{}, fault.New(fault.Invalid, "the archive has %d images; save one at a time", len(saved)).WithCode("bad_image")
	}
	if len(saved[0].Layers) > s.config.Bounds.Layers {
		return Record{}, tooMuch("the image has %d layers, at most %d are taken", len(saved[0].Layers), s.config.Bounds.Layers)
	}
	var layers []func() (io.ReadCloser, int64, error)
	for _, name := range saved[0].Layers {
		layers = append(layers, func() (io.ReadCloser, int64, error) { return a.open(name) })
	}
	return s.importLayers(ctx, layers, func([]string) ([]byte, error) {
		return s.smallFile(a, saved[0].Config)
	}, tag, said, progress)
}

// files are the files of a layout.
type files interface {
	open(name string) (io.ReadCloser, int64, error)
}

// folderFiles are those of a folder; nothing leads out of it.
type folderFiles struct{ root *os.Root }

func (f folderFiles) open(name string) (io.ReadCloser, int64, error) {
	file, err := f.root.Open(strings.TrimPrefix(name, "/"))
	if err != nil {
		return nil, 0, hostile("read the layout: %w", err)
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		_ = file.Close()
		return nil, 0, hostile("%q is not a file of a layout", name)
	}
	return file, info.Size(), nil
}

func (s *Store) smallFile(in files, name string) ([]byte, error) {
	r, size, err := in.open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	if size > s.config.Bounds.Document {
		return nil, tooMuch("%q has %d bytes", name, size)
	}
	return io.ReadAll(io.LimitReader(r, s.config.Bounds.Document))
}

func (s *Store) readDocument(in files, name string, into any) error {
	body, err := s.smallFile(in, name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return hostile("read %s: %w", name, err)
	}
	return nil
}

// importLayout takes the image for this machine from an OCI layout.
func (s *Store) importLayout(ctx context.Context, in files, tag, said string, progress Progress) (Record, error) {
	raw, err := s.smallFile(in, "index.json")
	if err != nil {
		return Record{}, err
	}
	for range 4 { // an index may hold an index
		i, err := v1.ParseIndexManifest(bytes.NewReader(raw))
		if err != nil {
			return Record{}, hostile("read the layout's index: %w", err)
		}
		d, err := s.choose(i)
		if err != nil {
			return Record{}, err
		}
		if raw, err = s.smallFile(in, blobName(d.Digest)); err != nil {
			return Record{}, err
		}
		if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != d.Digest.Hex {
			return Record{}, fault.New(fault.Invalid, "the manifest in the layout does not have the digest %s", d.Digest).WithCode("bad_digest")
		}
		if !d.MediaType.IsIndex() {
			return s.add(ctx, layoutSource{raw, in}, tag, said, progress)
		}
	}
	return Record{}, hostile("the layout's index leads to indexes only")
}

// choose picks the image for this machine: the only one, or the one that says
// that it is.
func (s *Store) choose(i *v1.IndexManifest) (v1.Descriptor, error) {
	var fit []v1.Descriptor
	for _, d := range i.Manifests {
		if p := d.Platform; p == nil || p.OS == "linux" && p.Architecture == s.config.Architecture {
			fit = append(fit, d)
		}
	}
	switch {
	case len(fit) == 1:
		return fit[0], nil
	case len(i.Manifests) == 1:
		return i.Manifests[0], nil
	case len(fit) == 0:
		return v1.Descriptor{}, fault.New(fault.NotFound, "the layout has no image for linux/%s", s.config.Architecture)
	}
	return v1.Descriptor{}, fault.New(fault.Invalid, "the layout has %d images for this machine; keep one", len(fit)).WithCode("bad_image")
}

func blobName(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }

// layoutSource is an image in a layout.
type layoutSource struct {
	raw []byte
	in  files
}

func (l layoutSource) manifest() ([]byte, error) { return l.raw, nil }

func (l layoutSource) blob(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	r, _, err := l.in.open(blobName(d.Digest))
	return r, err
}

// importLayers makes an image from layers that have no manifest yet. What is
// not packed is packed, quickly.
func (s *Store) importLayers(ctx context.Context, layers []func() (io.ReadCloser, int64, error), config func(contents []string) ([]byte, error),
	tag, said string, progress Progress,
) (Record, error) {
	use, err := s.using(ctx)
	if err != nil {
		return Record{}, err
	}
	defer use.release()
	descriptors, contents := []v1.Descriptor{}, []string{}
	for i, open := range layers {
		d, content, err := s.packLayer(ctx, open, progress)
		if err != nil {
			return Record{}, fmt.Errorf("read layer %d of %d: %w", i+1, len(layers), err)
		}
		descriptors, contents = append(descriptors, d), append(contents, content)
	}
	body, err := config(contents)
	if err != nil {
		return Record{}, err
	}
	digest, size, err := s.putBlob(ctx, bytes.NewReader(body), "", s.config.Bounds.Document)
	if err != nil {
		return Record{}, err
	}
	hash, err := v1.NewHash(digest)
	if err != nil {
		return Record{}, err
	}
	raw, err := manifestOf(v1.Descriptor{MediaType: types.OCIConfigJSON, Digest: hash, Size: size}, descriptors)
	if err != nil {
		return Record{}, err
	}
	m, err := s.parseManifest(raw)
	if err != nil {
		return Record{}, err
	}
	if digest, _, err = s.putBlob(ctx, bytes.NewReader(raw), "", s.config.Bounds.Document); err != nil {
		return Record{}, err
	}
	r, err := s.record(digest, m, int64(len(raw)), said)
	if err != nil {
		return Record{}, err
	}
	return s.enter(ctx, r, tag, progress)
}

// packLayer keeps a layer as a blob, and says what it unpacks to.
func (s *Store) packLayer(ctx context.Context, open func() (io.ReadCloser, int64, error), progress Progress) (v1.Descriptor, string, error) {
	r, size, err := open()
	if err != nil {
		return v1.Descriptor{}, "", err
	}
	defer func() { _ = r.Close() }()
	packed := &counter{r: &told{r: patient{ctx, r}, progress: progress, step: Step{Doing: "pack", Total: size}}}
	z, err := unpacked(packed)
	if err != nil {
		return v1.Descriptor{}, "", err
	}
	defer func() { _ = z.Close() }()
	content := sha256.New()
	out, in := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		bound := &swollen{z, s.config.Bounds.Slack + size*s.config.Bounds.Ratio}
		in.CloseWithError(zip(in, io.TeeReader(bound, content)))
	}()
	digest, size, err := s.putBlob(ctx, out, "", s.config.Bounds.Bytes)
	out.CloseWithError(err)
	<-ended
	if err != nil {
		return v1.Descriptor{}, "", err
	}
	hash, err := v1.NewHash(digest)
	if err != nil {
		return v1.Descriptor{}, "", err
	}
	return v1.Descriptor{MediaType: types.OCILayerZStd, Digest: hash, Size: size}, "sha256:" + hex.EncodeToString(content.Sum(nil)), nil
}

func zip(w io.Writer, r io.Reader) error {
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	if _, err := io.Copy(z, r); err != nil {
		return errors.Join(err, z.Close())
	}
	return z.Close()
}
