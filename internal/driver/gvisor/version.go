package gvisor

import (
	"debug/buildinfo"
	"strings"
)

// gvisorModule is what the sentry is built from.
const gvisorModule = "gvisor.dev/gvisor"

// Version names the release of gVisor that the sentry was built from, as the
// sentry's own file says it.
func (d *Driver) Version() string {
	info, err := buildinfo.ReadFile(d.config.Sentry)
	if err != nil {
		return ""
	}
	for _, module := range info.Deps {
		if module.Path == gvisorModule {
			return strings.TrimPrefix(module.Version, "v0.0.0-")
		}
	}
	return ""
}
