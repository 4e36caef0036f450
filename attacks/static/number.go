package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// numberFile holds the number of a process that has ended.
const numberFile = "/workspace/number"

// number is about who has which number. Without arguments it writes down its
// own and ends. With "take" it forks until a child of its own has that number,
// says so, and when it hears a byte looks whether somebody has killed that
// child for the other.
func number(args []string) {
	if len(args) == 0 {
		err := os.WriteFile(numberFile, []byte(strconv.Itoa(os.Getpid())), 0o644)
		expect("number", errors.Join(errHarmless, err))
		return
	}
	text, err := os.ReadFile(numberFile)
	want, convErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err := errors.Join(err, convErr); err != nil {
		fmt.Println("THROUGH reuse: nothing was tried:", err)
		return
	}
	tries, highest, got := takeNumber(want)
	if !got {
		fmt.Printf("NOT TAKEN: %d in %d tries up to %d\n", want, tries, highest)
		return
	}
	fmt.Printf("TAKEN in %d tries\n", tries)
	_, _ = os.Stdin.Read(make([]byte, 1))
	var status unix.WaitStatus
	pid, err := unix.Wait4(want, &status, unix.WNOHANG, nil)
	expectThat("reuse", pid == 0 && err == nil, fmt.Sprintf("number %d: wait says %d, %#x, %v", want, pid, status, err))
	_ = unix.Kill(want, unix.SIGKILL)
}

// takeNumber starts and ends children until one has the number, which it
// leaves alive. Numbers come round where there are few of them.
func takeNumber(want int) (tries, highest int, got bool) {
	const most, longest = 1 << 17, 12 * time.Second
	for begin := time.Now(); tries < most && time.Since(begin) < longest; tries++ {
		pid, _, errno := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0)
		switch {
		case errno != 0:
			time.Sleep(time.Millisecond)
			continue
		case pid == 0: // nothing of Go's runtime works here
			child(want)
		case int(pid) == want:
			return tries, highest, true
		}
		highest = max(highest, int(pid))
		_, _ = unix.Wait4(int(pid), nil, 0, nil)
	}
	return tries, highest, false
}

// child waits for its end if it has the number, and ends at once if not.
//
//go:nosplit
//go:norace
func child(want int) {
	pid, _, _ := unix.RawSyscall(unix.SYS_GETPID, 0, 0, 0)
	for int(pid) == want { // no signal wakes it but one that ends it
		_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
}
