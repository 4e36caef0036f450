// Package spawn is how a worker has gVisor sandboxes made without linking
// gVisor and without forking per sandbox: it keeps a few long-lived spawners,
// processes of the aurea-sentry binary, and asks them over a socket pair.
//
// protocol.go is what both sides speak; pool.go and spawner.go are the
// worker's side. The spawner's own side is in cmd/aurea-sentry. A spawner does
// one thing at a time. One that does not answer in time is killed and replaced;
// what it left half made is for the caller to remove. A spawner whose worker
// has died ends; the sandboxes that it made live on.
package spawn
