package image

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Listed is an image as a list shows it: one line for each name.
type Listed struct {
	Name string `json:"name,omitempty"` // "" where only the digest is left
	// Follows is the name that an alias stands for.
	Follows string    `json:"follows,omitempty"`
	Digest  string    `json:"digest,omitempty"` // "" where an alias leads nowhere
	Size    int64     `json:"size"`
	Added   time.Time `json:"added,omitzero"`
	Source  string    `json:"source,omitempty"`
	// Ready says that the root is made.
	Ready bool `json:"ready"`
}

// List lists the names, sorted, then the images that have none.
func (s *Store) List() ([]Listed, error) {
	i, err := s.readIndex()
	if err != nil {
		return nil, err
	}
	list, named := []Listed{}, map[string]bool{}
	names := slices.Sorted(maps.Keys(i.Names))
	names = append(names, slices.Sorted(maps.Keys(i.Aliases))...)
	slices.Sort(names)
	for _, name := range names {
		l := Listed{Name: name, Follows: i.Aliases[name]}
		if r, err := i.find(name); err == nil {
			l = s.listed(l, r)
			named[r.Digest] = true
		}
		list = append(list, l)
	}
	for _, digest := range slices.Sorted(maps.Keys(i.Images)) {
		if !named[digest] {
			list = append(list, s.listed(Listed{}, i.Images[digest]))
		}
	}
	return list, nil
}

func (s *Store) listed(l Listed, r Record) Listed {
	l.Digest, l.Size, l.Added, l.Source = r.Digest, r.Size, r.Added, r.Source
	l.Ready, _ = s.hasRoot(r.Digest)
	return l
}

// Details is all that is known of an image.
type Details struct {
	Record
	Names []string `json:"names"`
	// Root is the file that sandboxes start from, if it is made, and RootBytes
	// the room that it takes.
	Root      string `json:"root,omitempty"`
	RootBytes int64  `json:"root_bytes,omitempty"`
}

// Inspect tells all that is known of an image.
func (s *Store) Inspect(name string) (Details, error) {
	r, err := s.Find(name)
	if err != nil {
		return Details{}, err
	}
	i, err := s.readIndex()
	if err != nil {
		return Details{}, err
	}
	d := Details{Record: r, Names: []string{}}
	for _, name := range slices.Sorted(maps.Keys(i.Names)) {
		if i.Names[name] == r.Digest {
			d.Names = append(d.Names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.Aliases)) {
		if found, err := i.find(name); err == nil && found.Digest == r.Digest {
			d.Names = append(d.Names, name)
		}
	}
	if info, err := os.Stat(s.rootPath(r.Digest)); err == nil {
		d.Root, d.RootBytes = s.rootPath(r.Digest), roomOf(info)
	}
	return d, nil
}

// Tag gives an image another name.
func (s *Store) Tag(ctx context.Context, name, as string) error {
	tag, err := ParseTag(as)
	if err != nil {
		return err
	}
	known, err := ParseName(name)
	if err != nil {
		return err
	}
	return s.change(ctx, func(i *index) error {
		r, err := i.find(known)
		if err != nil {
			return err
		}
		delete(i.Aliases, tag)
		i.Names[tag] = r.Digest
		return nil
	})
}

// Alias makes a name stand for another, whatever that will be: a client that
// asks for the one gets the other. The other need not be there yet.
func (s *Store) Alias(ctx context.Context, name, follows string) error {
	tag, err := ParseTag(name)
	if err != nil {
		return err
	}
	target, err := ParseName(follows)
	if err != nil {
		return err
	}
	return s.change(ctx, func(i *index) error {
		i.Aliases[tag] = target
		at, steps := target, 1
		for next, ok := i.Aliases[at]; ok; next, ok = i.Aliases[at] {
			if at = next; at == tag || steps >= maxAliases {
				return fault.New(fault.Conflict, "%s would stand for itself, or for too long a row of names", tag)
			}
			steps++
		}
		if at == tag {
			return fault.New(fault.Conflict, "%s would stand for itself", tag)
		}
		delete(i.Names, tag)
		return nil
	})
}

// Remove takes a name, or an image by its digest with all its names, out of
// the index. What nothing needs any more goes with the next GC.
func (s *Store) Remove(ctx context.Context, name string) error {
	known, err := ParseName(name)
	if err != nil {
		return err
	}
	return s.change(ctx, func(i *index) error {
		if _, ok := i.Aliases[known]; ok {
			delete(i.Aliases, known)
			return nil
		}
		r, err := i.find(known)
		if err != nil {
			return err
		}
		if _, ok := i.Names[known]; ok {
			delete(i.Names, known)
			return nil
		}
		maps.DeleteFunc(i.Names, func(_, digest string) bool { return digest == r.Digest })
		delete(i.Images, r.Digest)
		return nil
	})
}

// FindShort finds the one image whose digest begins with a few digits, which
// is what people write.
func (s *Store) FindShort(text string) (Record, error) {
	const fewest = 6
	i, err := s.readIndex()
	if err != nil {
		return Record{}, err
	}
	var found []string
	if short := hexOf(text); len(short) >= fewest {
		for digest := range i.Images {
			if strings.HasPrefix(hexOf(digest), short) {
				found = append(found, digest)
			}
		}
	}
	if len(found) == 1 {
		return i.Images[found[0]], nil
	}
	return s.Find(text)
}
