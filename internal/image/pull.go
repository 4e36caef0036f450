package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Pull brings an image from its registry and makes its root. What is here
// already is not brought again. A name with a digest gets what has that digest.
func (s *Store) Pull(ctx context.Context, text string, progress Progress) (Record, error) {
	if text == HostName {
		return s.TakeHost(ctx, progress)
	}
	known, err := ParseName(text)
	if err != nil {
		return Record{}, err
	}
	ref, err := parseReference(text)
	if err != nil || isDigest(text) {
		return Record{}, fault.New(fault.Invalid, "%q names no registry; write registry.example/image@sha256:…", text).WithCode("bad_image_name")
	}
	r, err := s.pull(ctx, ref, known, progress)
	if err != nil {
		return Record{}, registryError("pull "+known, err)
	}
	return r, nil
}

func (s *Store) pull(ctx context.Context, ref name.Reference, known string, progress Progress) (Record, error) {
	puller, err := remote.NewPuller(s.options()...)
	if err != nil {
		return Record{}, err
	}
	d, err := puller.Get(ctx, ref)
	if err != nil {
		return Record{}, err
	}
	img, err := d.Image()
	if err != nil {
		return Record{}, err
	}
	return s.add(ctx, remoteSource{ref, puller, img}, known, "registry "+ref.Context().RegistryStr(), progress)
}

// remoteSource is an image in a registry.
type remoteSource struct {
	ref    name.Reference
	puller *remote.Puller
	image  v1.Image
}

func (r remoteSource) manifest() ([]byte, error) { return r.image.RawManifest() }

func (r remoteSource) blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	l, err := r.puller.Layer(ctx, r.ref.Context().Digest(d.Digest.String()))
	if err != nil {
		return nil, err
	}
	return l.Compressed()
}

func (s *Store) options() []remote.Option {
	return []remote.Option{
		remote.WithAuthFromKeychain(s.config.Keychain),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: s.config.Architecture}),
		remote.WithTransport(guarded{remote.DefaultTransport, s.config.Insecure}),
		remote.WithUserAgent("aurea"),
	}
}

// guarded lets nothing leave this machine in the clear, whoever asks for it: a
// name, a redirect, or a registry that says where to log in.
type guarded struct {
	next     http.RoundTripper
	insecure []string
}

// RoundTrip implements http.RoundTripper.
func (g guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	host := r.URL.Hostname()
	ip := net.ParseIP(host)
	local := host == "localhost" || ip != nil && ip.IsLoopback()
	if r.URL.Scheme != "https" && !local && !slices.Contains(g.insecure, r.URL.Host) && !slices.Contains(g.insecure, host) {
		return nil, fault.New(fault.Unavailable, "%s does not answer over TLS, and is not among the registries that may do without (--insecure)", r.URL.Host).WithCode("insecure_registry")
	}
	return g.next.RoundTrip(r)
}

// registryError gives what a registry said a kind.
func registryError(doing string, err error) error {
	var (
		known *fault.Error
		said  *transport.Error
		net   net.Error
	)
	switch {
	case errors.As(err, &known):
		return fmt.Errorf("%s: %w", doing, err)
	case errors.As(err, &said) && said.StatusCode == http.StatusNotFound:
		return fault.New(fault.NotFound, "%s: the registry has no such image: %w", doing, err)
	case errors.As(err, &said) && (said.StatusCode == http.StatusUnauthorized || said.StatusCode == http.StatusForbidden):
		return fault.New(fault.Denied, "%s: the registry refuses: %w", doing, err)
	case errors.As(err, &said), errors.As(err, &net):
		return fault.New(fault.Unavailable, "%s: %w", doing, err)
	case strings.Contains(err.Error(), "no child with platform"):
		return fault.New(fault.NotFound, "%s: the image has no variant for this machine: %w", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
