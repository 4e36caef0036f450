// Package guest is the worker's side of the conversation with PID 1 of a
// sandbox: it connects to the guest's two FIFOs, starts commands, carries
// their bytes, and moves files. Package wire is what is said, package inside
// the guest's own side.
//
// Everything that comes from a guest is hostile. It is decoded within bounds,
// checked against what was asked, and kept in buffers of fixed size; a guest
// that breaks the protocol is disconnected; one that says nothing holds up
// only those who wait for its answer, and they by their own ctx. The goroutine
// that reads never waits for a caller.
package guest
