// Package corpustest runs programs of every language in real sandboxes, in an
// image made from Debian packages: that each language works, that one more is
// an entry of a file and nothing else, and that a corpus of small programs
// behaves the same bare, in a cold sandbox and in a warm one. It holds tests
// only.
package corpustest
