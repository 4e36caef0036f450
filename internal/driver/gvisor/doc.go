// Package gvisor is the default driver: sandboxes in gVisor, a kernel in user
// space, so that untrusted code never speaks to the host's kernel.
//
// It links no gVisor itself. A few spawners (package spawn) make sandboxes from
// the aurea-sentry binary; PID 1 of each is our guest (package guest), reached
// over two FIFOs; and this package keeps the folder in which all of it is
// written down, watches over the processes, and removes them.
//
// The root of a sandbox is an image file (sandbox.Images) that all sandboxes of
// the image share and the sandbox's process maps, with the guest's own small image
// mounted over it at /.aurea; what is written over it goes to
// a file on disk that has no name and ends with the sandbox. Each sandbox has
// control groups of its own on the host (package cgroup), which hold its memory
// and its share of the processors; processes, disk and open files are held by the
// kernel in the sandbox.
//
// The state folder:
//
//	DIGEST/            the sentry that sandboxes are made from, the guest in an
//	                   image of its own, and earlier ones that live sandboxes
//	                   are of
//	owner              the name under which the host's control groups are ours
//	box/ID/            one sandbox: all that is left of it is in here
//	  box.json         what was asked for, and the handle
//	  config.json      the OCI bundle
//	  in, out          the FIFOs
//	  process.json     its process on the host, written by the spawner
//	  pause            whether the sandbox is paused
//	  run/, root/      gVisor's own
//	  image.erofs      the image's file, where it goes on from a snapshot
//	  panic.log        the sentry's warnings, and its last words
//	panic/ID.log       last words that outlived their sandbox
//
// A sandbox is paused by its own kernel, which is asked over a socket in run/.
//
// A snapshot is gVisor's checkpoint, which holds the memory and what was written
// over the image, with a manifest of ours that says of what it is, because gVisor
// does not look, and with links to what it needs. It goes on in a new sentry, with
// new FIFOs: the guest notices nothing but a new session.
package gvisor
