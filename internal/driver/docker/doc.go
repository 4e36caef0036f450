// Package docker is the driver for a Docker Engine: a container for each
// sandbox, made through the engine's API.
//
// PID 1 of each container is our guest (package guest), bind-mounted read-only
// and reached over two FIFOs, so that commands, terminals, files and adoption
// are the same as in every other sandbox; nothing goes through the engine but
// create, start, pause and remove. The engine must therefore be on this
// machine.
//
// The wall is the host's own kernel with namespaces, control groups, our own
// seccomp allow-list, no capabilities, a read-only root and no network. It is
// thinner than that of a user-space kernel: a hole in the host's kernel is a
// hole in it. SECURITY.md says what it stops.
//
// The state folder:
//
//	id                   names this folder on the engine's labels
//	guest-DIGEST         the guest that containers start
//	box/ID/              one sandbox
//	  box.json           what was asked for, and the handle
//	  channel/in, out    the FIFOs, the guest's alone
//	  etc/               the few files of /etc that are ours
package docker
