//go:build race

package attacktest

// raced says that the race detector is on. The attacks run in other processes,
// where it sees nothing.
const raced = true
