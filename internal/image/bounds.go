package image

import (
	"github.com/aurea-dev/aurea/internal/fault"
)

// Bounds hold what an image may cost before anything of it is trusted.
type Bounds struct {
	// Layers is how many layers an image may have.
	Layers int
	// Entries counts what all layers hold together, also what later layers
	// replace.
	Entries int
	// Bytes counts the content of files, unpacked, also what is replaced.
	Bytes int64
	// Names counts the bytes of names and link targets, which stay in memory.
	Names int64
	// Depth is how deep folders may lie.
	Depth int
	// Ratio is how much larger than its blob a layer may be, beyond Slack.
	Ratio, Slack int64
	// Document is how large a manifest or a configuration may be.
	Document int64
	// Steps bounds the work of following paths and of removing what whiteouts
	// name.
	Steps int
}

// DefaultBounds let every honest image pass that a sandbox could use.
func DefaultBounds() Bounds {
	return Bounds{
		Layers:   256,
		Entries:  1 << 20,
		Bytes:    32 << 30,
		Names:    256 << 20,
		Depth:    256,
		Ratio:    200,
		Slack:    256 << 20,
		Document: 4 << 20,
		Steps:    64 << 20,
	}
}

// tooMuch is an image beyond a bound.
func tooMuch(format string, args ...any) error {
	return fault.New(fault.TooLarge, format, args...).WithCode("image_too_large")
}

// hostile is an image that no honest tool makes.
func hostile(format string, args ...any) error {
	return fault.New(fault.Invalid, format, args...).WithCode("bad_image")
}
