package image

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/aurea-dev/aurea/internal/fault"
)

// source is an image somewhere else: its manifest, and its blobs by digest.
type source interface {
	manifest() ([]byte, error)
	// blob opens a blob. What it yields need not be what was asked for.
	blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error)
}

// add takes an image from a source: its blobs, then its root, then its name.
// Whatever fails, no name leads to half an image.
func (s *Store) add(ctx context.Context, from source, name, said string, progress Progress) (Record, error) {
	use, err := s.using(ctx)
	if err != nil {
		return Record{}, err
	}
	defer use.release()
	raw, err := from.manifest()
	if err != nil {
		return Record{}, err
	}
	m, err := s.parseManifest(raw)
	if err != nil {
		return Record{}, err
	}
	if err := s.fetch(ctx, from, m, progress); err != nil {
		return Record{}, err
	}
	digest, _, err := s.putBlob(ctx, bytes.NewReader(raw), "", s.config.Bounds.Document)
	if err != nil {
		return Record{}, err
	}
	r, err := s.record(digest, m, int64(len(raw)), said)
	if err != nil {
		return Record{}, err
	}
	return s.enter(ctx, r, name, progress)
}

// enter makes the root of an image whose blobs are here, and writes it into
// the index.
func (s *Store) enter(ctx context.Context, r Record, name string, progress Progress) (Record, error) {
	var err error
	if r.Left, r.LeftCount, err = s.makeRoot(ctx, r, progress); err != nil {
		return Record{}, err
	}
	err = s.change(ctx, func(i *index) error {
		if old, ok := i.Images[r.Digest]; ok { // it is the same image, and came before
			r.Added, r.Source = old.Added, old.Source
			if r.LeftCount == 0 { // its root was there already
				r.Left, r.LeftCount = old.Left, old.LeftCount
			}
		}
		i.Images[r.Digest] = r
		if name != "" {
			delete(i.Aliases, name)
			i.Names[name] = r.Digest
		}
		return nil
	})
	return r, err
}

// parseManifest refuses what is not an image for a sandbox.
func (s *Store) parseManifest(raw []byte) (*v1.Manifest, error) {
	if int64(len(raw)) > s.config.Bounds.Document {
		return nil, tooMuch("the manifest has %d bytes", len(raw))
	}
	m, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, hostile("read the manifest: %w", err)
	}
	switch {
	case m.SchemaVersion != 2:
		return nil, hostile("the manifest has schema version %d, only 2 is known", m.SchemaVersion)
	case m.Config.MediaType != types.OCIConfigJSON && m.Config.MediaType != types.DockerConfigJSON:
		return nil, hostile("%q is not the configuration of an image", m.Config.MediaType)
	case m.Config.Size < 0 || m.Config.Size > s.config.Bounds.Document:
		return nil, tooMuch("the image's configuration has %d bytes", m.Config.Size)
	case len(m.Layers) > s.config.Bounds.Layers:
		return nil, tooMuch("the image has %d layers, at most %d are taken", len(m.Layers), s.config.Bounds.Layers)
	}
	var size int64
	for _, d := range append(slices.Clone(m.Layers), m.Config) {
		// A blob that is elsewhere would let a manifest choose whom we ask.
		if len(d.URLs) > 0 || len(d.Data) > 0 {
			return nil, hostile("the blob %s is not kept with the image", d.Digest)
		}
		if !isDigest(d.Digest.String()) || d.Size < 0 {
			return nil, hostile("%q with %d bytes is not a blob", d.Digest, d.Size)
		}
		if size += d.Size; size > s.config.Bounds.Bytes || size < 0 {
			return nil, tooMuch("the image has more than %d bytes", s.config.Bounds.Bytes)
		}
	}
	for _, l := range m.Layers {
		switch l.MediaType {
		case types.OCILayer, types.OCILayerZStd, types.OCIUncompressedLayer, types.DockerLayer, types.DockerUncompressedLayer:
		default:
			return nil, hostile("%q is not a layer that can be unpacked", l.MediaType)
		}
	}
	return m, nil
}

// fetch brings the blobs of an image that are not here.
func (s *Store) fetch(ctx context.Context, from source, m *v1.Manifest, progress Progress) error {
	if err := s.fetchBlob(ctx, from, m.Config, nil); err != nil {
		return fmt.Errorf("fetch the image's configuration: %w", err)
	}
	const atOnce = 3
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots, ends := make(chan struct{}, atOnce), make(chan error, len(m.Layers))
	for i, d := range m.Layers {
		go func() {
			slots <- struct{}{}
			err := s.fetchBlob(ctx, from, d, progress)
			if err != nil {
				err = fmt.Errorf("fetch layer %d of %d: %w", i+1, len(m.Layers), err)
				cancel(err)
			}
			<-slots
			ends <- err
		}()
	}
	for range m.Layers {
		<-ends
	}
	return context.Cause(ctx)
}

func (s *Store) fetchBlob(ctx context.Context, from source, d v1.Descriptor, progress Progress) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if there, err := s.hasBlob(d.Digest.String(), d.Size); err != nil || there {
		return err
	}
	r, err := from.blob(ctx, d)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	step := Step{Doing: "pull", What: d.Digest.String(), Total: d.Size}
	_, _, err = s.putBlob(ctx, &told{r: r, progress: progress, step: step}, d.Digest.String(), d.Size)
	return err
}

// record reads what is worth knowing from an image's configuration.
func (s *Store) record(digest string, m *v1.Manifest, size int64, said string) (Record, error) {
	body, err := s.readBlob(m.Config.Digest.String())
	if err != nil {
		return Record{}, err
	}
	d, err := parseDocument(body)
	if err != nil {
		return Record{}, err
	}
	if d.OS != "" && d.OS != "linux" || d.Architecture != "" && d.Architecture != s.config.Architecture {
		return Record{}, fault.New(fault.Invalid, "the image is for %s/%s, this machine is linux/%s", d.OS, d.Architecture, s.config.Architecture).WithCode("bad_platform")
	}
	r := Record{
		Digest: digest, Added: time.Now().UTC().Truncate(time.Second), Source: said, Architecture: d.Architecture,
		Config: m.Config.Digest.String(), Size: size + m.Config.Size, Env: d.Config.Env, User: d.Config.User,
	}
	for _, l := range m.Layers {
		r.Layers = append(r.Layers, Layer{Digest: l.Digest.String(), Size: l.Size})
		r.Size += l.Size
	}
	return r, nil
}

// manifestOf writes the manifest of an image that had none of this form.
func manifestOf(config v1.Descriptor, layers []v1.Descriptor) ([]byte, error) {
	raw, err := json.Marshal(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config, Layers: layers})
	if err != nil {
		return nil, fmt.Errorf("write the manifest: %w", err)
	}
	return raw, nil
}
