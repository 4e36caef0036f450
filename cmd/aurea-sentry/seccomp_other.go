//go:build !amd64

package main

import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

// precompiled returns nothing: on this architecture the sentry builds its
// seccomp program when it starts, which costs time and nothing else.
func precompiled() map[string]precompiledseccomp.Program { return nil }
