package inside

import (
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/guest/wire"
)

// changes are those that are told together.
type changes struct {
	w      *inotify
	to     io.Writer
	events []event
	// arrivals has where in events something arrives that left before.
	arrivals map[uint32]int
	// last is what was told of a file last.
	last map[string]wire.ChangeKind
}

func batchOf(events []event) *changes {
	b := &changes{events: events, arrivals: map[uint32]int{}, last: map[string]wire.ChangeKind{}}
	for i, e := range events {
		if e.mask&unix.IN_MOVED_TO != 0 && e.cookie != 0 {
			b.arrivals[e.cookie] = i
		}
	}
	return b
}

// tellAll tells of all changes in their order.
func (b *changes) tellAll() error {
	for i := range b.events {
		if b.events[i].mask == 0 {
			continue // told with another
		}
		if err := b.tellOne(i); err != nil {
			return err
		}
	}
	if b.w.full {
		b.w.full = false
		return b.tell(wire.Change{Kind: wire.ChangeOverflow})
	}
	return nil
}

func (b *changes) tellOne(i int) error {
	e, w := b.events[i], b.w
	if e.mask&unix.IN_Q_OVERFLOW != 0 {
		// Folders may have come that nobody watches yet.
		if err := w.addBelow("", nil); err != nil {
			return err
		}
		return b.tell(wire.Change{Kind: wire.ChangeOverflow})
	}
	folder, known := w.folders[e.folder]
	if !known {
		return nil
	}
	isFolder := e.mask&unix.IN_ISDIR != 0
	name := path.Join(folder, e.name)
	switch {
	case e.mask&unix.IN_IGNORED != 0:
		delete(w.folders, e.folder)
		return nil
	case e.mask&unix.IN_DELETE_SELF != 0:
		if folder != "" || w.only != "" {
			return nil // its own folder tells of that
		}
		return b.tell(wire.Change{Kind: wire.ChangeDeleted, Type: wire.FileFolder})
	case e.mask&unix.IN_MOVED_FROM != 0:
		return b.left(e, name, isFolder)
	case e.name == "" || !w.concerns(e.name):
		return nil
	case e.mask&unix.IN_MOVED_TO != 0:
		return b.arrived(name, isFolder)
	case e.mask&unix.IN_CREATE != 0:
		if w.told[name] || w.toldBefore[name] {
			return nil
		}
		return b.arrived(name, isFolder)
	case e.mask&unix.IN_DELETE != 0:
		return b.tell(wire.Change{Kind: wire.ChangeDeleted, Type: goneType(isFolder), Name: name})
	}
	return b.modified(name, isFolder)
}

// concerns reports whether a name is one to tell of.
func (w *inotify) concerns(name string) bool {
	return !hidden(name) && (w.only == "" || w.only == name)
}

// left is something that was moved away, perhaps to where we see it too.
func (b *changes) left(e event, name string, isFolder bool) error {
	w := b.w
	i, found := b.arrivals[e.cookie]
	var to string
	if found {
		var folder string
		if folder, found = w.folders[b.events[i].folder]; found {
			to = path.Join(folder, b.events[i].name)
		}
	}
	from, there := w.concerns(e.name), found && w.concerns(b.events[i].name)
	switch {
	case strings.HasPrefix(e.name, replacePrefix) && there:
		b.events[i].mask = 0
		b.last[to] = 0 // this is another change than one before
		return b.modified(to, isFolder)
	case !from:
		return nil // its arrival is told by itself
	case !there:
		if isFolder {
			w.drop(name)
		}
		return b.tell(wire.Change{Kind: wire.ChangeDeleted, Type: goneType(isFolder), Name: name})
	}
	b.events[i].mask = 0
	if isFolder {
		w.renamed(name, to)
	}
	return b.tell(wire.Change{Kind: wire.ChangeRenamed, Type: b.typeAt(to, isFolder), Name: to, From: name})
}

// arrived is something that was not there before.
func (b *changes) arrived(name string, isFolder bool) error {
	err := b.tell(wire.Change{Kind: wire.ChangeCreated, Type: b.typeAt(name, isFolder), Name: name})
	if err != nil || !isFolder || !b.w.recursive || b.w.add(name) != nil {
		return err
	}
	return b.w.addBelow(name, b.tell)
}

// modified is a file that was written to, told once for a short while. What
// happens to a folder itself is told by what is in it.
func (b *changes) modified(name string, isFolder bool) error {
	if isFolder || b.last[name] == wire.ChangeModified {
		return nil
	}
	return b.tell(wire.Change{Kind: wire.ChangeModified, Type: b.typeAt(name, false), Name: name})
}

// typeAt is what stands at a name now.
func (b *changes) typeAt(name string, isFolder bool) wire.FileType {
	if isFolder {
		return wire.FileFolder
	}
	e, err := lookAt(path.Join(b.w.root, name), "")
	if err != nil {
		return wire.FileUnknown
	}
	return e.Type
}

// goneType is all that is known of the type of what is gone.
func goneType(isFolder bool) wire.FileType {
	if isFolder {
		return wire.FileFolder
	}
	return wire.FileUnknown
}

// tell writes one change. Of a file that is watched by itself, the name is what
// was asked for.
func (b *changes) tell(c wire.Change) error {
	b.last[c.Name] = c.Kind
	if b.w.only != "" {
		c.Name, c.From = "", ""
		if c.Kind == wire.ChangeRenamed {
			c.Kind = wire.ChangeDeleted
		}
	}
	if len(c.Name) >= maxName || len(c.From) >= maxName {
		c = wire.Change{Kind: wire.ChangeOverflow} // no path of it can be asked for
	}
	_, err := b.to.Write(c.Append(nil))
	return err
}

// maxName is the longest name that a worker takes.
const maxName = 4096
