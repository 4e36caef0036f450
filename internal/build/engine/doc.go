// Package engine builds images from Dockerfiles through a Docker Engine, and
// takes the result over as one of our images.
//
// Building runs what the Dockerfile says, in containers of that engine and with
// its network, not in sandboxes: who may build is who may manage. Contexts are
// hostile input: they are read once, bounded, and written anew before the
// engine sees them.
//
// The worker calls it for the manager, the command line for itself.
package engine
