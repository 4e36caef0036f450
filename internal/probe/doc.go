// Package probe proves at start that a driver's wall stands on this machine:
// in a fresh sandbox of it, it tries what no sandbox may allow (package inside
// does the trying) and reports each attempt. A driver is served only if all
// were stopped; what could not be tried was not stopped.
//
// It judges one driver, through the driver contract alone. The worker is its
// caller, and acts on the report.
package probe
