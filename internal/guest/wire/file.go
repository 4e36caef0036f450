package wire

import (
	"encoding/binary"
	"time"
)

// File is what an Open about files asks for, beside its Path.
type File struct {
	// To is where Path goes, of Move and Copy.
	To string
	// Mode is the permissions of what is made; 0 leaves them to the guest.
	Mode uint32
	// Depth and Most bound a List.
	Depth uint16
	Most  uint32
	// Offset and Length are the part of a Read; -1 is to the end.
	Offset, Length int64
	// Recursive is of Remove and Watch.
	Recursive bool
}

func (f File) append(b []byte) []byte {
	b = appendString(b, f.To)
	b = binary.BigEndian.AppendUint32(b, f.Mode)
	b = binary.BigEndian.AppendUint16(b, f.Depth)
	b = binary.BigEndian.AppendUint32(b, f.Most)
	b = appendOffset(b, f.Offset)
	b = appendOffset(b, f.Length+1)
	return appendBool(b, f.Recursive)
}

func (c *cursor) file() File {
	return File{
		To:     c.string("path", maxPath),
		Mode:   c.uint32("mode"),
		Depth:  c.uint16("depth"),
		Most:   c.uint32("count"),
		Offset: c.offset("offset"), Length: c.offset("length") - 1,
		Recursive: c.bool("recursive"),
	}
}

// maxPath is the longest path that a kernel takes.
const maxPath = 4096

// FileType is what stands at a path.
type FileType uint8

// The types. Unknown is of what is gone.
const (
	FileUnknown  FileType = 0
	FileRegular  FileType = 1
	FileFolder   FileType = 2
	FileLink     FileType = 3
	FileOther    FileType = 4
	lastFileType          = FileOther
)

func (c *cursor) fileType() FileType {
	t := FileType(c.byte("type"))
	if t > lastFileType {
		c.fail("type %d is unknown", t)
	}
	return t
}

// name takes a path relative to what was asked for; "" is that itself. One that
// could lead anywhere else is a lie.
func (c *cursor) name(what string) string {
	s := c.string(what, maxPath)
	if s == "" {
		return s
	}
	for begin, i := 0, 0; i <= len(s); i++ {
		if i < len(s) && s[i] == 0 {
			c.fail("%s holds a NUL byte", what)
			return ""
		}
		if i < len(s) && s[i] != '/' {
			continue
		}
		if part := s[begin:i]; part == "" || part == "." || part == ".." {
			c.fail("%s %q is not one below what was asked for", what, s)
			return ""
		}
		begin = i + 1
	}
	return s
}

// Entry is what a guest says of one file.
type Entry struct {
	Name    string // relative to what was asked for; "" is that itself
	Type    FileType
	Mode    uint32 // permissions
	Size    int64
	ModTime time.Time
	Target  string // of a link
}

// MaxEntry bounds one entry: two paths and what is known of a file.
const MaxEntry = 2*maxPath + 64

// Append appends the entry to b.
func (e Entry) Append(b []byte) []byte {
	b = appendString(b, e.Name)
	b = append(b, byte(e.Type))
	b = binary.BigEndian.AppendUint32(b, e.Mode)
	b = appendOffset(b, e.Size)
	b = binary.BigEndian.AppendUint64(b, uint64(e.ModTime.UnixNano()))
	return appendString(b, e.Target)
}

func (c *cursor) entry() Entry {
	e := Entry{Name: c.name("name"), Type: c.fileType(), Mode: c.uint32("mode"), Size: c.offset("size")}
	if e.Mode > 0o777 {
		c.fail("mode %#o", e.Mode)
	}
	if t := c.take(8, "time"); t != nil {
		e.ModTime = time.Unix(0, int64(binary.BigEndian.Uint64(t)))
	}
	e.Target = c.string("target", maxPath)
	return e
}

// DecodeEntry decodes a single entry.
func DecodeEntry(b []byte) (Entry, error) {
	c := &cursor{b: b}
	e := c.entry()
	return e, c.end()
}

// A listing is entries, each behind a one, and at the end a zero and whether
// there are more.
const (
	listEnd   = 0
	listEntry = 1
)

// AppendListed appends one entry of a listing to b.
func AppendListed(b []byte, e Entry) []byte { return e.Append(append(b, listEntry)) }

// AppendListEnd appends the end of a listing to b.
func AppendListEnd(b []byte, more bool) []byte { return appendBool(append(b, listEnd), more) }

// DecodeList decodes a whole listing of at most most entries, which must be in
// order.
func DecodeList(b []byte, most int) (list []Entry, more bool, err error) {
	c := &cursor{b: b}
	for c.err == nil {
		switch c.byte("entry") {
		case listEnd:
			more = c.bool("more")
			return list, more, c.end()
		case listEntry:
			e := c.entry()
			switch {
			case len(list) >= most:
				c.fail("more entries than were asked for")
			case e.Name == "" || len(list) > 0 && e.Name <= list[len(list)-1].Name:
				c.fail("entries are out of order")
			}
			list = append(list, e)
		default:
			c.fail("neither an entry nor the end")
		}
	}
	return nil, false, c.err
}

// ChangeKind is what happened to a file.
type ChangeKind uint8

// The kinds of Change.
const (
	ChangeCreated  ChangeKind = 1
	ChangeModified ChangeKind = 2
	ChangeDeleted  ChangeKind = 3
	ChangeRenamed  ChangeKind = 4
	ChangeOverflow ChangeKind = 5
	lastChange                = ChangeOverflow
)

// Change is one thing that happened to a file below what is watched.
type Change struct {
	Kind       ChangeKind
	Type       FileType
	Name, From string // relative to what is watched
}

// Append appends the change to b, with its length before it.
func (c Change) Append(b []byte) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0, byte(c.Kind), byte(c.Type))
	b = appendString(appendString(b, c.Name), c.From)
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// NextChange decodes the change at the front of b and returns what is behind
// it. Without a whole change it returns b as it is and false.
func NextChange(b []byte) (change Change, rest []byte, whole bool, err error) {
	if len(b) < 4 {
		return Change{}, b, false, nil
	}
	n := binary.BigEndian.Uint32(b)
	if n > MaxEntry {
		return Change{}, nil, false, malformed("a change of %d bytes", n)
	}
	if uint32(len(b)-4) < n {
		return Change{}, b, false, nil
	}
	c := &cursor{b: b[4 : 4+n]}
	change = Change{Kind: ChangeKind(c.byte("kind")), Type: c.fileType(), Name: c.name("name"), From: c.name("name")}
	if change.Kind == 0 || change.Kind > lastChange {
		c.fail("change %d is unknown", change.Kind)
	}
	return change, b[4+n:], true, c.end()
}

// Knows asks whether the guest knows a kind of Open. A guest that does not know
// the question ignores it.
type Knows struct {
	Tag  uint32
	Kind Kind
}

// Append appends the payload to b.
func (k Knows) Append(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, k.Tag), byte(k.Kind))
}

// DecodeKnows decodes a Knows.
func DecodeKnows(b []byte) (Knows, error) {
	c := &cursor{b: b}
	k := Knows{Tag: c.uint32("tag"), Kind: Kind(c.byte("kind"))}
	return k, c.end()
}

// Disk is how many bytes of files a guest has found to be written.
type Disk struct{ Bytes int64 }

// Append appends the answer to b.
func (d Disk) Append(b []byte) []byte { return appendOffset(b, d.Bytes) }

// DecodeDisk decodes a Disk.
func DecodeDisk(b []byte) (Disk, error) {
	c := &cursor{b: b}
	d := Disk{Bytes: c.offset("bytes")}
	return d, c.end()
}

// MaxDisk bounds a Disk.
const MaxDisk = 8
