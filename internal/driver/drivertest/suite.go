// Package drivertest is the driver contract as tests: one for each sentence of
// it, which every driver passes. Optional powers are asked of Capabilities:
// those that are declared must work, those that are not must be refused.
//
// A driver's own test opens it and runs the suite:
//
//	drivertest.Run(t, drivertest.Harness{
//		Open: func(t *testing.T, folder string) sandbox.Driver { … },
//	})
//
// The programs of the suite are small shell scripts. They keep to true, echo,
// cat, head -c, sleep, exit, pwd, mkdir, ln -s, printenv, kill of $$, wait,
// lists, quotes, variables and redirections, which the fake driver understands
// too.
package drivertest

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// patience bounds every check. It is no measure: a check that reaches it hangs.
const patience = 60 * time.Second

// Harness says how the suite gets at a driver.
type Harness struct {
	// Open opens the driver with its state in folder. Where the driver has
	// Capabilities.Recover, it is opened again on the folder of a driver that
	// was closed. The suite closes it.
	Open func(t *testing.T, folder string) sandbox.Driver
	// Image is the image of every sandbox; "" is the driver's default.
	Image string
	// Shell turns a script into a command; the default is sh -c.
	Shell func(script string) []string
	// Alive is a script that prints how many processes run in the sandbox
	// whose arguments are "sleep $MARK"; ProcAlive is one for Linux. Without it
	// the processes that Usage counts are taken.
	Alive string
	// OOM returns an exec that needs more memory than the limit. Without it,
	// running out of memory is not tried.
	OOM func(limit int64) sandbox.ExecSpec
	// Echo returns an exec that prints "listening" and then sends back what
	// comes over a connection to the port at the address. Without it, ports are
	// not tried; Echo, the function, is one for sandboxes with Python.
	Echo func(address string, port uint16) sandbox.ExecSpec
	// Kernel says that scripts run in a real shell on a Linux kernel, so that
	// limits on processes and open files can be tried.
	Kernel bool
	// Lacks names the checks that the driver does not pass yet, each with the
	// reason. It is a list of debts, printed with every run.
	Lacks map[string]string
}

// ProcAlive is a Harness.Alive for sandboxes with sh and a Linux /proc.
const ProcAlive = `n=0
for f in /proc/[0-9]*/cmdline; do
  if [ "$(tr '\0' ' ' <"$f" 2>/dev/null)" = "sleep $MARK " ]; then n=$((n+1)); fi
done
echo $n`

// check is one sentence of the contract.
type check struct {
	name string
	run  func(r *rig)
}

// Run tests the driver against every sentence of the contract.
func Run(t *testing.T, h Harness) {
	checks := slices.Concat(lifeChecks(), adoptChecks(), processChecks(), outputChecks(), fileChecks(), limitChecks(),
		pauseChecks(), killChecks(), snapshotChecks(), filerChecks(), watchChecks(), portChecks())
	for name := range h.Lacks {
		if !slices.ContainsFunc(checks, func(c check) bool { return c.name == name }) {
			t.Errorf("the harness lacks %q, which is no check of the suite", name)
		}
	}
	d := h.Open(t, folder(t))
	t.Cleanup(func() { closeEmpty(t, d) })
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if reason, lacking := h.Lacks[c.name]; lacking {
				t.Skip("the driver lacks this: " + reason)
			}
			c.run(newRig(t, h, d))
		})
	}
}

// closeEmpty closes the driver after the suite has destroyed all that it made.
func closeEmpty(t *testing.T, d sandbox.Driver) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errPatience)
	defer cancel()
	left, err := d.List(ctx)
	if err != nil {
		t.Errorf("list what is left: %v", err)
	}
	if len(left) > 0 {
		t.Errorf("%d sandboxes are left after all were destroyed: %v", len(left), left)
	}
	if err := d.Close(); err != nil {
		t.Errorf("close the driver: %v", err)
	}
}

var errPatience = errors.New("the check took too long")

// folder makes a folder with a short name: drivers put sockets into it.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the state folder: %v", err)
		}
	})
	return dir
}
