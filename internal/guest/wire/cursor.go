package wire

import "encoding/binary"

// cursor takes fields off the front of a payload. The first field that is not
// there makes it fail, and all that follow.
type cursor struct {
	b   []byte
	err error
}

func (c *cursor) fail(format string, args ...any) {
	if c.err == nil {
		c.err = malformed(format, args...)
	}
	c.b = nil
}

func (c *cursor) take(n int, what string) []byte {
	if c.err != nil {
		return nil
	}
	if len(c.b) < n {
		c.fail("%s is cut short", what)
		return nil
	}
	taken := c.b[:n]
	c.b = c.b[n:]
	return taken
}

func (c *cursor) byte(what string) byte {
	if b := c.take(1, what); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) uint16(what string) uint16 {
	if b := c.take(2, what); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) uint32(what string) uint32 {
	if b := c.take(4, what); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// offset takes a count of bytes, which is never negative.
func (c *cursor) offset(what string) int64 {
	b := c.take(8, what)
	if b == nil {
		return 0
	}
	v := binary.BigEndian.Uint64(b)
	const most = 1 << 56 // far from where sums overflow
	if v > most {
		c.fail("%s is out of range", what)
		return 0
	}
	return int64(v)
}

func (c *cursor) bool(what string) bool {
	v := c.byte(what)
	if v > 1 {
		c.fail("%s is neither true nor false", what)
	}
	return v == 1
}

func (c *cursor) string(what string, most int) string {
	n := c.uint32(what)
	if int64(n) > int64(most) {
		c.fail("%s of %d bytes, at most %d", what, n, most)
		return ""
	}
	return string(c.take(int(n), what))
}

func (c *cursor) strings(what string, most int) []string {
	n := int(c.uint32(what))
	// Each takes four bytes at least: a count beyond that is a lie, and must
	// not make us allocate.
	if n > len(c.b)/4 {
		c.fail("%s counts more than there are", what)
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, c.string(what, most))
	}
	return list
}

// end returns the first failure, or that something is left.
func (c *cursor) end() error {
	if c.err == nil && len(c.b) != 0 {
		c.fail("%d bytes too many", len(c.b))
	}
	return c.err
}

func appendString(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

func appendStrings(b []byte, list []string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendOffset(b []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(max(v, 0)))
}
