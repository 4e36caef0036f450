// Package fake is a driver that executes nothing: sandboxes are records, files
// are bytes in memory, processes are told what to do. It is a product for
// tests, demonstrations and dry runs, and it keeps every sentence of the driver
// contract. It never starts a program, opens a connection, or touches a file of
// the host outside its own state folder.
//
// # Scripts
//
// The environment of the sandbox, and over it that of the exec, says what
// happens. A value that cannot be understood, and a FAKE_ name that is not
// listed here, is a fault of kind Invalid.
//
//	FAKE_SLEEP=50ms          each process first sleeps that long
//	FAKE_STDOUT=text         the process prints the text
//	FAKE_STDERR=text
//	FAKE_OUTPUT_BYTES=10MB   it prints so many bytes of lines to stdout
//	FAKE_EXIT=3              it ends with this code
//	FAKE_SIGNAL=11           it ends by this signal
//	FAKE_OOM=1               it is killed because memory ran out
//	FAKE_MEMORY=300MB        it needs so much memory: over the limit it is
//	                         killed as with FAKE_OOM
//	FAKE_CPU=300ms           it uses so much processor time, at its start
//	FAKE_LISTEN=8080         it prints "listening" and is a server at this port,
//	                         which sends back what it gets, until it is killed
//	FAKE_CRASH=step          the sandbox dies at the step: create, exec, run,
//	                         put or get
//	FAKE_HANG=step           create, exec, put and get hang until their ctx
//	                         ends; run never ends until it is killed; the
//	                         first destroy hangs, later ones work
//
// FAKE_STDOUT, FAKE_STDERR, FAKE_OUTPUT_BYTES, FAKE_EXIT, FAKE_SIGNAL and
// FAKE_OOM stand in for the command, which is then not looked at. Sizes take
// the units B, KB, MB, GB, KiB, MiB and GiB.
//
// # Commands
//
// Without such a script a small set of commands does what it does elsewhere, on
// the sandbox's own files: true, false, echo, cat, head -c, sleep, exit, pwd,
// cd, mkdir, touch, rm, ln -s, test, printenv, stty size, kill of $$, wait, and
// sh, with -c or with a file, of a list of those joined by ";", "&&", "||", "&"
// and newlines, with quotes, variables and the redirections <, >, >>, 2>, 2>>,
// >&2 and 2>&1. Any other program that could exist prints what would be run and
// succeeds: those in /bin, /sbin and /usr are taken to exist, elsewhere only
// what was put there does.
//
// # State
//
// With a state folder, sandboxes survive the process: each has a journal of
// what was asked of it, and Recover plays it again. Time that passed counts as
// slept. Without one, they are gone when the driver is closed, and no snapshot
// can be taken of them, which is a copy of the journal.
package fake
