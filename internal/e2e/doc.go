// Package e2e tells stories over the whole program: real binaries, started as
// processes, talked to over HTTP and the command line, and killed. It has
// nothing to import; everything is in its tests.
//
//   - testdata/*.txtar are the stories that people read first: what a person
//     types and what then happens (story_test.go has their commands).
//   - worker_test.go is a worker that is not ours: plain HTTP, as the first
//     users of the queue wrote theirs.
//   - crash_test.go and the files beside it kill the manager, the worker and
//     both under load, and then demand that the record is whole.
//   - hostile_test.go sends what nobody should send.
//
// CRASHES says how often to kill (50), CRASH_SEED where chance begins.
package e2e
