package erofs

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// maxBlocks is how many blocks the format can count.
const maxBlocks = 1 << 32

// Writer writes one image into a file. Append, Reserve and what is done with
// what they return may come from several goroutines; Finish comes last.
type Writer struct {
	file *os.File

	mu   sync.Mutex
	next int64 // the first block that is free
}

// NewWriter returns a writer into an empty file, which stays the caller's: to
// sync, to close, to remove after an error.
func NewWriter(file *os.File) *Writer { return &Writer{file: file, next: 1} }

// errFull is more than the format can hold.
var errFull = errors.New("an image holds at most 16 TiB")

// Reserve sets blocks aside for size bytes, to be written through Into.
func (w *Writer) Reserve(size int64) (Data, error) {
	if size < 0 {
		return Data{}, fmt.Errorf("reserve %d bytes", size)
	}
	if size == 0 {
		return Data{}, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	blocks := (size-1)/blockSize + 1
	if blocks >= maxBlocks-w.next {
		return Data{}, errFull
	}
	d := Data{Block: uint32(w.next), Size: size}
	w.next += blocks
	return d, nil
}

// Into returns a writer for the bytes of d. Bytes that are not written are
// zero.
func (w *Writer) Into(d Data) io.Writer {
	return &bounded{io.NewOffsetWriter(w.file, d.offset()), d.Size}
}

// Append copies exactly size bytes into the image.
func (w *Writer) Append(r io.Reader, size int64) (Data, error) {
	d, err := w.Reserve(size)
	if err != nil || size == 0 {
		return d, err
	}
	n, err := io.Copy(w.Into(d), io.LimitReader(r, size))
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return Data{}, fmt.Errorf("write a file's bytes: %w", err)
	}
	return d, nil
}

// Begin has the kernel begin to write to disk what it has, so that the sync at
// the end finds less to do. It does not wait, and promises nothing.
func (w *Writer) Begin() {
	_ = unix.SyncFileRange(int(w.file.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}

// From reads bytes that were written before.
func (w *Writer) From(d Data) io.Reader { return io.NewSectionReader(w.file, d.offset(), d.Size) }

func (d Data) offset() int64 { return int64(d.Block) << blockBits }

// bounded keeps a file's bytes in the file's own blocks.
type bounded struct {
	w    io.Writer
	left int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		return 0, io.ErrShortWrite
	}
	n, err := b.w.Write(p)
	b.left -= int64(n)
	return n, err
}

// Finish writes the tree below root, and then the superblock, so that a file
// that was left half written is not an image. Blocks that no file of the tree
// uses become holes.
func (w *Writer) Finish(root *Node) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, err := plan(root)
	if err != nil {
		return err
	}
	w.punch(l.nodes)
	inodes := w.next
	at := inodes + (l.size+blockSize-1)/blockSize
	for _, n := range l.outside {
		n.place.block = uint32(at)
		at += (n.place.size + blockSize - 1) / blockSize
	}
	if at >= maxBlocks {
		return errFull
	}
	if err := w.writeInodes(l, inodes); err != nil {
		return fmt.Errorf("write the inodes: %w", err)
	}
	if err := w.file.Truncate(at << blockBits); err != nil {
		return fmt.Errorf("set the image's size: %w", err)
	}
	if _, err := w.file.WriteAt(superblock(uint64(len(l.nodes)), uint32(at), uint32(inodes)), 0); err != nil {
		return fmt.Errorf("write the superblock: %w", err)
	}
	w.next = at
	return nil
}

// punch gives back the blocks of files that a later layer replaced. Where the
// file system below cannot, they stay.
func (w *Writer) punch(nodes []*Node) {
	live := make([]Data, 0, len(nodes))
	for _, n := range nodes {
		if n.IsRegular() && n.Data.Size > 0 {
			live = append(live, n.Data)
		}
	}
	slices.SortFunc(live, func(a, b Data) int { return cmp.Compare(a.Block, b.Block) })
	at := int64(blockSize)
	hole := func(until int64) bool {
		if until <= at {
			return true
		}
		return unix.Fallocate(int(w.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, until-at) == nil
	}
	for _, d := range live {
		if !hole(d.offset()) {
			return
		}
		at = d.offset() + (d.Size+blockSize-1)/blockSize*blockSize
	}
	hole(w.next << blockBits)
}

func (w *Writer) writeInodes(l layout, start int64) error {
	out := bufio.NewWriterSize(io.NewOffsetWriter(w.file, start<<blockBits), 1<<20)
	at := int64(0)
	pad := func(to int64) {
		for zero := (&[blockSize]byte{})[:]; at < to; {
			n := min(to-at, blockSize)
			_, _ = out.Write(zero[:n]) // Flush says what failed
			at += n
		}
	}
	write := func(b []byte) {
		_, _ = out.Write(b)
		at += int64(len(b))
	}
	for _, n := range l.nodes {
		pad(n.place.offset)
		write(inode(n))
		if n.place.inline {
			write(behind(n))
		}
	}
	for _, n := range l.outside {
		pad(int64(n.place.block)<<blockBits - start<<blockBits)
		write(behind(n))
	}
	return out.Flush()
}

// inode is the long form, which has room for times and large numbers.
func inode(n *Node) []byte {
	const extended, inline = 1, 2 << 1
	format := uint16(extended)
	if n.place.inline {
		format |= inline
	}
	le := binary.LittleEndian
	b := make([]byte, 0, inodeSize)
	b = le.AppendUint16(b, format)
	b = le.AppendUint16(b, 0) // extended attributes
	b = le.AppendUint16(b, n.Mode)
	b = le.AppendUint16(b, 0)
	b = le.AppendUint64(b, uint64(n.place.size))
	b = le.AppendUint32(b, n.place.block)
	b = le.AppendUint32(b, uint32(n.place.nid())) // a number for 32-bit stat
	b = le.AppendUint32(b, n.UID)
	b = le.AppendUint32(b, n.GID)
	b = le.AppendUint64(b, uint64(n.Mtime))
	b = le.AppendUint32(b, n.MtimeNs)
	b = le.AppendUint32(b, n.place.links)
	return b[:inodeSize]
}

// behind is what a link or a folder holds.
func behind(n *Node) []byte {
	if n.IsLink() {
		return []byte(n.Target)
	}
	out := make([]byte, 0, n.place.size)
	for c := range direntBlocks(n.place.names) {
		start := (len(out) + blockSize - 1) / blockSize * blockSize
		out = append(out, make([]byte, start-len(out))...)
		offset := direntSize * len(c.names)
		for _, name := range c.names {
			child := n.Entries[name]
			switch name {
			case ".":
				child = n
			case "..":
				child = n.place.parent
			}
			out = binary.LittleEndian.AppendUint64(out, child.place.nid())
			out = binary.LittleEndian.AppendUint16(out, uint16(offset))
			out = append(out, fileType(child), 0)
			offset += len(name)
		}
		for _, name := range c.names {
			out = append(out, name...)
		}
	}
	return out
}

func fileType(n *Node) byte {
	const regular, folder, link = 1, 2, 7
	switch n.Mode & TypeMask {
	case Folder:
		return folder
	case Link:
		return link
	}
	return regular
}

// superblock is the first block. Times of files are their own, and nothing of
// when or where the image was written is in it: the same tree is the same file.
func superblock(inodes uint64, blocks, meta uint32) []byte {
	const magic, checksummed = 0xe0f5e1e2, 1
	block := make([]byte, blockSize)
	le := binary.LittleEndian
	b := block[superStart:superStart]
	b = le.AppendUint32(b, magic)
	b = le.AppendUint32(b, 0) // checksum
	b = le.AppendUint32(b, checksummed)
	b = append(b, blockBits, 0)
	b = le.AppendUint16(b, 0) // the root is the first inode
	b = le.AppendUint64(b, inodes)
	b = le.AppendUint64(b, 0) // time of the build
	b = le.AppendUint32(b, 0)
	b = le.AppendUint32(b, blocks)
	le.AppendUint32(b, meta)
	sum := ^crc32.Checksum(block[superStart:], crc32.MakeTable(crc32.Castagnoli))
	le.PutUint32(block[superStart+4:], sum)
	return block
}
