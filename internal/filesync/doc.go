// Package filesync keeps a folder tree in a sandbox and the stored files of a
// session alike, both ways. It decides; sandboxes, rows and bytes are reached
// through small interfaces.
//
// For a door: make one Syncer per process with New, over NewShelf(store, blobs,
// limits). Syncer.Sync does one pass and never fails as a whole because of one
// file; Syncer.Follow does passes for as long as a sandbox's Watch lives;
// Syncer.Resolve settles a conflict that was left. What people outside do with
// stored files are the methods of Shelf: List, Get, Put, Delete, Versions, Diff,
// Usage, Forget. A Side is a sandbox.Filer.
//
// How a path is decided: three states are compared, that of the sandbox, that of
// the session, and the one that both had when they were last synced. What
// changed on one side goes to the other, deletions too; what is the same on both
// is remembered; what changed on both differently is a conflict, for which there
// are three strategies. A change always wins over a deletion.
//
// Order of writes: bytes, then the row, then the sandbox's file, and what was
// synced is remembered last. A pass that is cut anywhere leaves each path either
// as it was or already alike on both sides, so doing it again ends where one
// pass would have ended.
//
// Everything that comes from the sandbox is hostile: names, sizes, times, and
// how many. What is refused is listed among the errors and left alone.
package filesync
