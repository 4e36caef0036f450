// Package deploytest brings up what deploy/ describes, as an operator would.
// Nothing of ours runs in the test's own process, so there is nothing for the
// race detector to see, and the tests leave themselves out under it.
package deploytest
