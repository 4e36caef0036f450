// Package image keeps the images that sandboxes start from: it pulls them from
// a registry, imports them from archives, takes the host's own programs as one,
// and turns each into a root, which is one read-only EROFS file that all
// sandboxes of the image share.
//
// A store is a folder:
//
//	index.json    names, aliases and what is known of each image
//	blobs/sha256  manifests, configurations and layers by digest, as they came
//	roots         <image>-<form>.erofs, made from blobs
//	tmp, locks    what is under way
//
// Several processes may use it at once. Everything that appears in it appears
// whole: it is written aside, synced and renamed.
//
// Layers are hostile input. They are never unpacked onto the host: names and
// links live in a tree in memory, bytes go straight into the new root, and both
// are bounded.
//
// The guest is in no root: it is mounted into each, so that another release does
// not mean other roots.
//
// The worker finds images through sandbox.Images, the commands through Store.
package image
