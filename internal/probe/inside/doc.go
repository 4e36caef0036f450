// Package inside is the half of the isolation probe that runs in a sandbox: it
// tries what no sandbox may allow, and prints for each attempt whether it was
// stopped. It is a mode of the guest's binary, so that it is in every sandbox
// already and needs nothing of the image.
//
// What it says is believed only as far as internal/probe, its other half,
// can: an attempt that is not reported counts as one that got through.
package inside
