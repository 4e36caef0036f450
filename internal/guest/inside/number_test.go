package inside

import (
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// bystander is a process that was given the number of one that has ended.
func bystander(t *testing.T) (pid int, lives func() bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid, func() bool {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		return err == nil && waitedPID(&info) == 0
	}
}

// TestANumberThatIsSomebodyElsesNow signals by a number that was written down
// before its process ended: neither the kill of a command nor that of its tree
// may hit who has the number now.
func TestANumberThatIsSomebodyElsesNow(t *testing.T) {
	t.Parallel()
	pid, lives := bystander(t)
	l := &linux{}
	if err := l.signal(&process{pid: pid}, int(unix.SIGKILL), false); err != nil { // reaped, so not alive
		t.Error(err)
	}
	m := &marks{proc: "/proc"}
	if err := m.send(pid, firstMark+countMarks-1, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	if !lives() {
		t.Fatal("a process was killed for one that had its number before")
	}
	// The same call on a process that is still its own does kill.
	if err := l.signal(&process{pid: pid, alive: true}, int(syscall.SIGKILL), false); err != nil {
		t.Error(err)
	}
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil || lives() {
		t.Errorf("it lives on: %v", err)
	}
}
