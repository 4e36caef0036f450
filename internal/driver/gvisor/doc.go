// Package gvisor is the default driver: sandboxes in gVisor, a kernel in user
// space, so that untrusted code never speaks to the host's kernel.
//
// It links no gVisor itself. A few spawners (package spawn) make sandboxes from
// the aurea-sentry binary; PID 1 of each is our guest (package guest), reached
// over two FIFOs; and this package keeps the folder in which all of it is
// written down, watches over the processes, and removes them.
//
// The state folder:
//
//	image/host-DIGEST/   the read-only root that all sandboxes share
//	box/ID/              one sandbox: all that is left of it is in here
//	  box.json           what was asked for, and the handle
//	  config.json        the OCI bundle
//	  in, out            the FIFOs
//	  process.json       its processes on the host, written by the spawner
//	  run/, panic.log    gVisor's own
//
// What this first version lacks: limits, images other than host, pause and
// snapshots. It refuses them.
package gvisor
