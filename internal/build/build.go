// Package build is the noun of making an image from a Dockerfile: what is
// asked, the steps on the way, and what it came to; and the checks of what
// outsiders send. Who does it is internal/build/engine, on a worker.
package build

import (
	"regexp"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Bounds of an order.
const (
	MaxContext = 64 << 20 // bytes of an uploaded context, unpacked
	MaxEntries = 10000    // files and folders in it
	maxArgs    = 64
	maxArg     = 4096
	maxName    = 64
	maxTag     = 256
	maxPath    = 256
)

// Default is the Dockerfile that is built where none is named.
const Default = "sandbox"

// Order is what is asked.
type Order struct {
	// Name is a Dockerfile that the worker has; "" is Default, unless a context
	// comes along.
	Name string `json:"name,omitempty"`
	// Tag is the name that the image gets; "" is the worker's default image for
	// Default, and the name of the Dockerfile for every other.
	Tag string `json:"tag,omitempty"`
	// Dockerfile is a path in the context that comes along; "" is "Dockerfile".
	Dockerfile string `json:"dockerfile,omitempty"`
	// Args are the values of the Dockerfile's ARGs.
	Args map[string]string `json:"args,omitempty"`
	// Fresh uses nothing that an earlier build left, and asks the registry for
	// the base anew.
	Fresh bool `json:"fresh,omitempty"`
	// Uploaded says that a context comes along.
	Uploaded bool `json:"uploaded,omitempty"`
}

// Step is a sign of progress.
type Step struct {
	// Doing is what is under way: "build", "pull" or "import".
	Doing string `json:"doing"`
	// Line is where in the Dockerfile; 0 is nowhere. Number counts instructions
	// from 1, Of says how many there are.
	Line   int `json:"line,omitempty"`
	Number int `json:"number,omitempty"`
	Of     int `json:"of,omitempty"`
	// Text is a line that was said.
	Text string `json:"text,omitempty"`
	// Done and Total count bytes.
	Done  int64 `json:"done,omitempty"`
	Total int64 `json:"total,omitempty"`
}

// Result is what a build came to.
type Result struct {
	Image  string `json:"image"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

var (
	names = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)
	args  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// Check refuses an order that no worker should see. A name that it lets through
// is one word: it can name a folder, and nothing above or below it.
func (o Order) Check() error {
	switch {
	case o.Name != "" && o.Uploaded:
		return fault.Field("dockerfile", "a context came along; a Dockerfile of the server cannot be named too")
	case o.Name != "" && (len(o.Name) > maxName || !names.MatchString(o.Name) || strings.Contains(o.Name, "..")):
		return fault.Field("dockerfile", "%.80q is not the name of a Dockerfile; use small letters, digits, dots, dashes and underscores", o.Name)
	case len(o.Tag) > maxTag:
		return fault.Field("image", "the name of an image can have at most %d characters", maxTag)
	case len(o.Args) > maxArgs:
		return fault.Field("args", "there can be at most %d", maxArgs)
	}
	for name, value := range o.Args {
		if len(name) > maxName || !args.MatchString(name) {
			return fault.Field("args", "%.80q is not the name of an ARG", name)
		}
		if len(value) > maxArg || strings.ContainsAny(value, "\x00\n\r") {
			return fault.Field("args", "the value of %s must be one line of at most %d bytes", name, maxArg)
		}
	}
	return o.checkPath()
}

// checkPath looks at the path of the Dockerfile in a context.
func (o Order) checkPath() error {
	p := o.Dockerfile
	if p == "" {
		return nil
	}
	if !o.Uploaded {
		return fault.Field("dockerfile", "a path needs a context that comes along")
	}
	bad := len(p) > maxPath || strings.HasPrefix(p, "/") || strings.ContainsAny(p, "\x00\n\r\\")
	for part := range strings.SplitSeq(p, "/") {
		bad = bad || part == "" || part == "." || part == ".."
	}
	if bad {
		return fault.Field("dockerfile", "%.80q is not a path inside the context", p)
	}
	return nil
}
