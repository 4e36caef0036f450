package spawn

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// FindProcess names the process that has the number pid now.
func FindProcess(pid int) (Process, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, fmt.Errorf("read the process's state: %w", err)
	}
	start, err := parseStart(stat)
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Start: start}, nil
}

// parseStart takes the 22nd field of /proc/PID/stat. The second is the
// program's name in brackets, which may itself hold spaces and brackets.
func parseStart(stat []byte) (uint64, error) {
	_, rest, ok := cutLast(stat, ')')
	if !ok {
		return 0, errors.New("process state has no name")
	}
	fields := bytes.Fields(rest)
	const startAfterName = 19
	if len(fields) <= startAfterName {
		return 0, errors.New("process state is too short")
	}
	start, err := strconv.ParseUint(string(fields[startAfterName]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse the process's start time: %w", err)
	}
	return start, nil
}

func cutLast(b []byte, sep byte) (before, after []byte, ok bool) {
	if i := bytes.LastIndexByte(b, sep); i >= 0 {
		return b[:i], b[i+1:], true
	}
	return b, nil, false
}
