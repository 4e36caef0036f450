package gvisor_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/aurea-dev/aurea/internal/sandbox"
)

// Commands that are over in a moment are watched in another way than those that
// last, and some are just on the border.
func TestBriefCommands(t *testing.T) {
	t.Parallel()
	d := open(t, stateDir(t))
	t.Cleanup(func() { d.Close() })
	b := box(t, d)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range 25 {
				said, errs, exit := command(t, b, sandbox.ExecSpec{Command: []string{"echo", fmt.Sprint(i)}})
				if said != fmt.Sprintln(i) || errs != "" || exit.Code != 0 {
					t.Errorf("echo %d said %q %q, %+v", i, said, errs, exit)
				}
			}
		})
	}
	group.Wait()
	many := strings.Repeat("\x00", 110_000)
	for _, c := range []struct {
		args      []string
		said      string
		code, sig int
	}{
		{[]string{"false"}, "", 1, 0},
		{[]string{"head", "-c", "110000", "/dev/zero"}, many, 0, 0},
		{[]string{"sh", "-c", "kill -9 $$"}, "", -1, 9},
		{[]string{"sh", "-c", "exec >/dev/null 2>&1; sleep 0.05; exit 4"}, "", 4, 0},
		{[]string{"sh", "-c", "echo begun; sleep 1000 & exit 3"}, "begun\n", 3, 0},
	} {
		said, _, exit := command(t, b, sandbox.ExecSpec{Command: c.args})
		if said != c.said || exit.Signal != c.sig || c.sig == 0 && exit.Code != c.code {
			t.Errorf("%.40q said %.40q, %+v", c.args, said, exit)
		}
	}
	// What they leave behind is looked after when it ends, also while nothing else
	// runs.
	say(t, b, "kill -9 $(grep -l '^sleep' /proc/[0-9]*/cmdline 2>/dev/null | grep -o '[0-9]*')")
	eventually(t, "what was left is gone", func() bool {
		return say(t, b, "grep -h '^Name' /proc/[0-9]*/status 2>/dev/null | grep -c sleep") == "0"
	})
}
