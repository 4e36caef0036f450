package image

import (
	"context"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Push sends an image to the registry that its name, or another name, says.
func (s *Store) Push(ctx context.Context, text, to string, progress Progress) (Record, error) {
	r, err := s.Find(text)
	if err != nil {
		return Record{}, err
	}
	if r.Host != "" {
		return Record{}, fault.New(fault.Conflict, "the host's image is this machine's own, and is not pushed")
	}
	if to == "" {
		to = text
	}
	if _, err := ParseTag(to); err != nil {
		return Record{}, err
	}
	ref, err := parseReference(to)
	if err != nil {
		return Record{}, err
	}
	use, err := s.using(ctx)
	if err != nil {
		return Record{}, err
	}
	defer use.release()
	img, err := s.image(ctx, r)
	if err != nil {
		return Record{}, err
	}
	updates, ended := make(chan v1.Update, 16), make(chan struct{})
	go func() {
		defer close(ended)
		for u := range updates { // remote.Write closes it
			progress.tell(Step{Doing: "push", Done: u.Complete, Total: u.Total})
		}
	}()
	err = remote.Write(ref, img, append(s.options(), remote.WithContext(ctx), remote.WithProgress(updates))...)
	<-ended
	if err != nil {
		return Record{}, registryError("push "+ref.Name(), err)
	}
	return r, nil
}

// image is an image of the store as others know images.
func (s *Store) image(ctx context.Context, r Record) (v1.Image, error) {
	raw, err := s.readBlob(r.Digest)
	if err != nil {
		return nil, err
	}
	m, err := s.parseManifest(raw)
	if err != nil {
		return nil, err
	}
	config, err := s.readBlob(r.Config)
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(kept{s, ctx, raw, config, m})
}

// kept is an image whose blobs are files.
type kept struct {
	store       *Store
	ctx         context.Context //nolint:containedctx // it bounds one push
	raw, config []byte
	parsed      *v1.Manifest
}

// RawConfigFile implements partial.CompressedImageCore.
func (k kept) RawConfigFile() ([]byte, error) { return k.config, nil }

// RawManifest implements partial.CompressedImageCore.
func (k kept) RawManifest() ([]byte, error) { return k.raw, nil }

// MediaType implements partial.CompressedImageCore.
func (k kept) MediaType() (types.MediaType, error) {
	if k.parsed.MediaType == "" {
		return types.OCIManifestSchema1, nil
	}
	return k.parsed.MediaType, nil
}

// LayerByDigest implements partial.CompressedImageCore.
func (k kept) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	for _, d := range k.parsed.Layers {
		if d.Digest == h {
			return keptLayer{k, d}, nil
		}
	}
	return nil, fault.New(fault.NotFound, "the image has no layer %s", h)
}

type keptLayer struct {
	of         kept
	descriptor v1.Descriptor
}

// Digest implements partial.CompressedLayer.
func (l keptLayer) Digest() (v1.Hash, error) { return l.descriptor.Digest, nil }

// Size implements partial.CompressedLayer.
func (l keptLayer) Size() (int64, error) { return l.descriptor.Size, nil }

// MediaType implements partial.CompressedLayer.
func (l keptLayer) MediaType() (types.MediaType, error) { return l.descriptor.MediaType, nil }

// Compressed implements partial.CompressedLayer.
func (l keptLayer) Compressed() (io.ReadCloser, error) {
	f, err := l.of.store.openBlob(l.descriptor.Digest.String())
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{patient{l.of.ctx, f}, f}, nil
}
