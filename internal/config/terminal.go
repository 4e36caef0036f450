package config

import (
	"os"
	"regexp"
)

// Terminal is the kind of terminal that this process has, for programs that
// draw on it: the TERM of its environment, where that can be one.
func Terminal() string {
	kind := os.Getenv("TERM") //nolint:forbidigo // this is where it is read
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}$`).MatchString(kind) || kind == "dumb" {
		return "xterm-256color"
	}
	return kind
}
