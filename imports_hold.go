//go:build hold

package hold

import (
	_ "github.com/containerd/go-runc"
	_ "github.com/erofs/go-erofs"
	_ "github.com/google/go-containerregistry/pkg/registry"
	_ "github.com/google/go-containerregistry/pkg/v1/layout"
	_ "github.com/google/go-containerregistry/pkg/v1/mutate"
	_ "github.com/google/go-containerregistry/pkg/v1/remote"
	_ "github.com/google/go-containerregistry/pkg/v1/tarball"
	_ "github.com/moby/moby/api/types/container"
	_ "github.com/moby/moby/client"
	_ "gvisor.dev/gvisor/runsc/cli/maincli"
)
