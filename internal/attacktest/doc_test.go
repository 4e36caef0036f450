// Package attacktest runs the attacks of the folder attacks in a sandbox of
// each local driver, and checks that each ends with a verdict of its manifest
// and that the host, a neighbour, the guest and this process are unharmed.
package attacktest
