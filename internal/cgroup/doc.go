// Package cgroup bounds and measures processes of the host with the kernel's
// control groups: version 2, version 1, and hosts that have both.
//
// A Host is this machine's tree, seen by one owner: it makes groups below a
// parent of its own, "aurea/OWNER", and touches nothing else. The parent stands
// below the group in which this process runs (on version 2, where a group with
// processes cannot have bounded children, beside it), so that a bound that
// somebody has set around us also holds for all that we start.
//
// Open tries each controller for real and keeps the reason where one does not
// work; a limit that needs it is then refused by Make. Every file is reached
// below a descriptor of its hierarchy's root, and names are checked.
//
// Drivers call it. It knows nothing of sandboxes.
package cgroup
