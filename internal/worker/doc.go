// Package worker hosts sandboxes. It leases jobs from the manager, does each in
// a sandbox of its own, keeps the evidence, and reports. It dials out and
// nothing dials in; it knows the manager through dispatch and nothing else: no
// store, no other worker.
//
// One Worker has one folder, which a lock guards:
//
//	workspaces/{job}   what the newest try of a job left
//	snapshots/         the same as reproducible, read-only tars
//	spool/             output that is not in memory, or must not be in memory alone
//	leases/            a journal of each lease, for the process that comes after this one
//	boxes/{sandbox}/   journals and output of each sandbox that is kept, likewise
//	binders/           empty folders for those that come
//	checkpoints/       sandboxes that were saved with their memory
//	worker.json        who this worker is, made once
//	worker.lock
//
// The path of a job through the package: leases.go asks for it, task.go holds
// it, work.go does it, seal.go turns what it left into a result, report.go and
// finish.go hand that over. session.go keeps the worker known to the manager,
// and extend.go keeps the leases alive and takes commands.
//
// A worker that is killed at any moment is followed by one that goes on.
// Everything that the next one has to know is in the journal of the lease
// (journal.go) before it is done, and every byte of output is in the spool
// before the driver may drop it; adopt.go reads both at the start, meets the
// sandboxes again, and names in the registration what is held and what was
// lost. This costs nothing with a driver that cannot recover sandboxes, and a
// few small writes without a sync with one that can.
//
// A run comes down the command stream (runs.go), and is made into a sandbox, its
// files and its command (runplan.go), done, and answered (runwork.go). Nothing of
// it is written down: a worker that is killed leaves sandboxes that the next
// start sweeps, and the manager has the run done again.
//
// A sandbox that is kept comes down the command stream too (host.go): hosted.go
// holds all of them, hostbox.go makes one and watches over it to its end,
// hostexec.go and hostinput.go do the same for a command in it, hostspool.go
// keeps what it prints, and hosttell.go tells the manager of ends, again and
// again until they are taken. All of it is written down first (hostjournal.go, in
// files and folders that hostsheets.go and hostbinders.go use again), and the next
// process goes on from there (hostadopt.go). hostpause.go,
// hostsnapshot.go and hostrestore.go make one stand still, save it, and go on
// from what was saved.
//
// room.go says how much is taken at a time: sandboxes, their memory, and
// nothing while the disk is full.
package worker
