// Package storetest is the suite that every adapter of the store contract
// passes. Each sentence of the contract has its test here; what only one
// adapter promises is tested beside that adapter.
package storetest

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/store"
)

// Database is one database, empty at first. Each call opens it; the suite
// closes what it opened before it opens it again, and at the end of the test.
type Database func() store.Store

// Run tests an adapter. fresh makes a new database for one test.
func Run(t *testing.T, fresh func(t *testing.T) Database) {
	t.Helper()
	tests := []struct {
		name string
		run  func(t *testing.T, db Database)
	}{
		{"an update is kept and a failed one leaves nothing", testUpdate},
		{"an update sees what it wrote", testOwnWrites},
		{"a panic rolls back and goes on", testPanic},
		{"a goroutine that ends inside an update rolls back", testGoexit},
		{"an update whose context has ended does not run", testEndedContext},
		{"updates do not interleave", testInterleave},
		{"the failure of one update never touches others", testFailureIsolation},
		{"a view sees every earlier update", testViewSeesUpdates},
		{"a view is one consistent state", testViewIsConsistent},
		{"a view does not write", testViewIsReadOnly},
		{"a view returns and panics as its function does", testViewEnds},
		{"a watcher is woken after each commit with events", testWatch},
		{"a slow watcher loses nothing", testSlowWatcher},
		{"a watch ends with its context and with the store", testWatchEnds},
		{"every field of a job comes back", testJobRoundTrip},
		{"a job is added once", testJobAdd},
		{"put changes all but the fixed fields", testJobPut},
		{"a missing job is not found", testJobMissing},
		{"jobs are paged from the newest", testJobPages},
		{"claimers take every job exactly once", testClaimers},
		{"every field of an event comes back", testEventRoundTrip},
		{"events are in order and bounded", testEventOrder},
		{"a page ends where its bytes do", testPageBytes},
		{"text that is none is taken all the same", testHostileText},
		{"event numbers follow the commits", testEventCommitOrder},
		{"workers are kept", testWorkers},
		{"records and artifacts are kept for each try", testRecords},
		{"small blobs are kept with their record", testBlobs},
		{"keys are kept by hash", testKeys},
		{"whether the organisation is paused is kept", testPause},
		{"one leads at a time", testLeaders},
		{"replies are kept until they are forgotten", testReplies},
		{"a run is kept through its life", testRunRoundTrip},
		{"a sandbox is kept through its life", testSandboxRoundTrip},
		{"the names of open sandboxes are unique", testSandboxNames},
		{"sandboxes are listed and accounted for", testSandboxLists},
		{"an exec is kept through its life", testExecs},
		{"unfinished work is kept until it is dropped", testUnfinished},
		{"a machine is kept through its life", testMachines},
		{"machines are listed, and those that have fallen are found", testMachineLists},
		{"sessions are kept by their owner", testSessions},
		{"contracts are kept by name", testContracts},
		{"the keys of manifests are kept", testManifestKeys},
		{"a worker of the fleet is kept through its life", testFleet},
		{"the fleet is listed and counted", testFleetLists},
		{"triggers are kept with who is in breach of them", testTriggers},
		{"what triggers did is kept", testFirings},
		{"what hooks are to be told is kept", testNotices},
		{"the commands of the fleet are counted", testFleetCommands},
		{"the kill switch stays engaged until it is released", testSwitches},
		{"ended sandboxes are forgotten", testForgetSandboxes},
		{"every version of a file comes back", testFiles},
		{"files are listed, added up and trimmed", testFileLists},
		{"what was synced is remembered", testSynced},
		{"runs are listed, and those that nobody has are found", testRunLists},
		{"webhooks are kept until they are dropped", testHooks},
		{"ended runs are forgotten, their bytes before", testForgetRuns},
		{"old events are forgotten from the front", testForgetEvents},
		{"an ended plan is forgotten whole", testForgetPlan},
		{"what records refer to is listed and dropped", testKeptHistory},
		{"workers that are away for long are forgotten", testForgetWorkers},
		{"every field of an audit record comes back", testAuditRoundTrip},
		{"the audit has no gaps where updates fail", testAuditRollback},
		{"the audit proves its records and its past", testAuditProofs},
		{"old audit records are purged, their hashes are not", testAuditPurge},
		{"checkpoints of the audit are kept", testAuditCheckpoints},
		{"all is there after the store was opened again", testReopen},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, fresh(t))
		})
	}
	t.Run("job queries agree with a model", func(t *testing.T) {
		t.Parallel()
		testJobModel(t, func() Database { return fresh(t) })
	})
	t.Run("event filters agree with Matches", func(t *testing.T) {
		t.Parallel()
		testEventFilter(t, func() Database { return fresh(t) })
	})
	t.Run("audit filters agree with Matches", func(t *testing.T) {
		t.Parallel()
		testAuditFilter(t, func() Database { return fresh(t) })
	})
}

// open opens the database until the end of the test.
func open(t *testing.T, db Database) store.Store {
	t.Helper()
	s := db()
	t.Cleanup(func() { check(t, s.Close()) })
	return s
}

// failing is what check and equal need: a test, or a run of a property.
type failing interface {
	Helper()
	Fatalf(format string, args ...any)
	Context() context.Context
}

// check ends the test on an error.
func check(t failing, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}

// equal ends the test when got is not want.
func equal(t failing, what string, got, want any, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// wantKind ends the test unless err is a fault of the kind.
func wantKind(t failing, what string, err error, kind fault.Kind) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Fatalf("%s: got error %v, want one of kind %s", what, err, kind)
	}
}

// update writes, and ends the test on an error.
func update(t failing, s store.Store, fn func(tx store.Tx) error) {
	t.Helper()
	check(t, s.Update(t.Context(), fn))
}

// view reads one thing, and ends the test on an error.
func view[T any](t failing, s store.Store, fn func(tx store.Tx) (T, error)) (got T) {
	t.Helper()
	check(t, s.View(t.Context(), func(tx store.Tx) (err error) {
		got, err = fn(tx)
		return err
	}))
	return got
}

// viewErr reads one thing and returns the error only.
func viewErr[T any](t failing, s store.Store, fn func(tx store.Tx) (T, error)) error {
	t.Helper()
	return s.View(t.Context(), func(tx store.Tx) error {
		_, err := fn(tx)
		return err
	})
}
