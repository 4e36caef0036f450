package image

import (
	"context"
	"fmt"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

var _ sandbox.Images = (*Store)(nil)

// maxAliases is how many aliases may follow one another.
const maxAliases = 8

// Resolve implements sandbox.Images. The name "" is the default image if it is
// there, else the host's. A root that is missing is made from what the store
// has, which takes as long as it takes; Prepare does it ahead.
func (s *Store) Resolve(ctx context.Context, name string) (sandbox.Image, error) {
	known, err := s.nameOf(name)
	if err != nil {
		return sandbox.Image{}, err
	}
	r, err := s.Find(known)
	if err != nil {
		if known != HostName || !fault.Is(err, fault.NotFound) {
			return sandbox.Image{}, err
		}
		if r, err = s.TakeHost(ctx, nil); err != nil {
			return sandbox.Image{}, err
		}
	}
	there, err := s.hasRoot(r.Digest)
	if err != nil {
		return sandbox.Image{}, fmt.Errorf("look for the root of %s: %w", known, err)
	}
	switch {
	case there:
	case r.Host != "": // of an earlier form, or removed
		if r, err = s.TakeHost(ctx, nil); err != nil {
			return sandbox.Image{}, err
		}
	default:
		if _, _, err := s.makeRoot(ctx, r, nil); err != nil {
			return sandbox.Image{}, fmt.Errorf("make the root of %s: %w", known, err)
		}
	}
	return sandbox.Image{Name: known, Digest: r.Digest, Root: s.rootPath(r.Digest), Env: r.Env, User: r.User}, nil
}

// nameOf is the name that is asked for.
func (s *Store) nameOf(name string) (string, error) {
	if name == "" {
		return s.DefaultName(), nil
	}
	known, err := ParseName(name)
	if err != nil {
		return "", err
	}
	return s.standIn(known)
}

// DefaultAlias is what an alias says that stands for the default image.
const DefaultAlias = "default"

// standIn is the name itself if there is such an image, else what the operator
// decided that those get who ask for it. An image that is here is never hidden.
func (s *Store) standIn(known string) (string, error) {
	to, ok := s.config.Aliases[known]
	if !ok {
		return known, nil
	}
	i, err := s.readIndex()
	if err != nil {
		return "", err
	}
	if _, err := i.find(known); err == nil {
		return known, nil
	}
	if to == DefaultAlias {
		return s.DefaultName(), nil
	}
	return to, nil
}

// parseAliases checks the names in aliases.
func parseAliases(aliases map[string]string) (map[string]string, error) {
	parsed := map[string]string{}
	for name, to := range aliases {
		known, err := ParseName(name)
		if err == nil && to != DefaultAlias {
			to, err = ParseName(to)
		}
		if err != nil {
			return nil, fault.Field("AUREA_IMAGE_ALIASES", "%w", err)
		}
		parsed[known] = to
	}
	return parsed, nil
}

// DefaultName is the image of requests that name none, at this moment.
func (s *Store) DefaultName() string {
	if s.config.Default == "" {
		return HostName
	}
	known, err := ParseName(s.config.Default)
	if err != nil {
		return HostName
	}
	if _, err := s.Find(known); err != nil {
		return HostName
	}
	return known
}

// Stale reports whether the default image is the host's, can be used, and shows
// the host as it was and is no more. Whoever cannot wait uses it until Prepare
// has taken it anew.
func (s *Store) Stale() (bool, error) {
	if s.DefaultName() != HostName {
		return false, nil
	}
	r, usable, err := s.hostRecord()
	if err != nil || !usable {
		return false, err
	}
	state, err := s.config.Host.state()
	return err == nil && r.Host != state, err
}

// Prepare makes the roots of images ready; "" is the default. The host's image
// is taken anew if the host has changed.
func (s *Store) Prepare(ctx context.Context, progress Progress, names ...string) error {
	for _, name := range names {
		known, err := s.nameOf(name)
		if err != nil {
			return err
		}
		if known == HostName {
			if _, err := s.TakeHost(ctx, progress); err != nil {
				return err
			}
			continue
		}
		if _, err := s.Resolve(ctx, known); err != nil {
			return err
		}
	}
	return nil
}

// Find returns what is known of an image, by name, alias or digest.
func (s *Store) Find(name string) (Record, error) {
	known, err := ParseName(name)
	if err == nil {
		known, err = s.standIn(known)
	}
	if err != nil {
		return Record{}, err
	}
	i, err := s.readIndex()
	if err != nil {
		return Record{}, err
	}
	return i.find(known)
}

func (i index) find(known string) (Record, error) {
	asked := known
	for range maxAliases {
		next, ok := i.Aliases[known]
		if !ok {
			break
		}
		known = next
	}
	digest := i.Names[known]
	if isDigest(known) {
		digest = known
	}
	if _, at, ok := cutDigest(known); ok && digest == "" {
		digest = at // whoever asks by digest gets it, whatever its name was
	}
	r, ok := i.Images[digest]
	if !ok {
		return Record{}, fault.New(fault.NotFound, "there is no image %q here; get it with `aurea image pull %s`, or `aurea image import`", asked, known).WithCode("image_not_found")
	}
	return r, nil
}
