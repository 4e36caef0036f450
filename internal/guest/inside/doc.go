// Package inside is the guest's own side: the engine of PID 1 in a sandbox. It
// starts commands as its children, owns their pipes and terminals, keeps their
// output until a worker has taken it and their ends until a worker has heard
// of them, and moves files. cmd/aurea-guest is its only caller.
//
// A worker may die and another come at any moment. So nothing here waits for a
// worker: what is to be said is derived from what is (a command's buffers and
// its end), never queued, and the one goroutine that writes to the worker is
// the only one that blocks on it. A command whose output nobody takes is held
// up by its own full pipe, as it would be anywhere.
//
// The code that runs in the sandbox is another user's and is not trusted. It
// can neither signal nor trace the guest, and holds none of its descriptors.
package inside
