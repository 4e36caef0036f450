// Package erofs writes EROFS images: read-only file systems in one file, in
// the plain subset that gVisor maps straight into a sandbox: no compression,
// the bytes of every regular file whole and on block boundaries, no extended
// attributes.
//
// It is a writer only. Bytes of files go out first, as they come; names and
// inodes follow in Finish, so nothing is kept twice. What a tree may hold is
// the caller's to decide; this package refuses only what the format cannot
// say. The image store is its only user.
package erofs
