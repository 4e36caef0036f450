// Package worker hosts sandboxes. It leases jobs from the manager, does each in
// a sandbox of its own, keeps the evidence, and reports. It dials out and
// nothing dials in; it knows the manager through dispatch and nothing else: no
// store, no other worker.
//
// One Worker has one folder, which a lock guards:
//
//	workspaces/{job}   what the newest try of a job left
//	snapshots/         the same as reproducible, read-only tars
//	spool/             output too large for memory, of this process only
//	worker.json        who this worker is, made once
//	worker.lock
//
// The path of a job through the package: leases.go asks for it, task.go holds
// it, work.go does it, seal.go turns what it left into a result, report.go and
// finish.go hand that over. session.go keeps the worker known to the manager,
// and extend.go keeps the leases alive and takes commands.
package worker
