package sandbox

import "context"

// Image is a root that sandboxes start from, ready on this machine. It is
// found by digest, shared by all sandboxes that use it, and never written to.
type Image struct {
	// Name is what was asked for, Digest what it stood for at that moment.
	Name   string `json:"name"`
	Digest string `json:"digest"`
	// Root is a read-only EROFS file with the whole tree. It holds /workspace,
	// and the folder /.aurea, over which the driver mounts the guest.
	Root string `json:"root"`
	// Env and User come from the image's own configuration.
	Env  []string `json:"env,omitempty"`
	User string   `json:"user,omitempty"`
}

// Images finds images. A name that is not there is a fault of kind NotFound
// that says how to get it; nothing is downloaded behind the caller's back.
type Images interface {
	Resolve(ctx context.Context, name string) (Image, error)
}
