// Package language is the registry of languages: which file code goes into,
// which command runs it, what is compiled before, how an interpreter waits.
// A language is an entry of a file, never code.
//
// The file is embedded; an operator's own is laid over it, entry by entry.
// Manager, worker and command line read the same one. Which languages are
// active is the worker's to find out: it depends on the image.
package language

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Language says how code of one language is run.
type Language struct {
	// Name is what users say, lower case; Aliases are other words for it.
	Name    string   `json:"name"`
	Aliases []string `json:"aliases,omitempty"`
	// File is the file that the code goes into, in the workspace.
	File string `json:"file"`
	// Extensions and Shebangs tell a file's language, for the command line.
	Extensions []string `json:"extensions,omitempty"`
	Shebangs   []string `json:"shebangs,omitempty"`
	// Command is the program and its arguments. "{file}" stands for the file,
	// "{out}" for what the compile step made; the caller's arguments follow.
	Command []string `json:"command"`
	// Compile is the step before, or none; it has limits of its own.
	Compile *Compile `json:"compile,omitempty"`
	// Needs are programs that an image must have for the language to be active;
	// empty is the first word of Command and of Compile.
	Needs []string `json:"needs,omitempty"`
	// Image is the image that it runs in where a request names none; "" is the
	// server's own.
	Image string `json:"image,omitempty"`
	// Warm names the launcher with which an interpreter can wait for its code;
	// "" is none: then a waiting sandbox is all that the pool can give.
	Warm string `json:"warm,omitempty"`
}

// The words of a command that stand for something else. Each is a whole word:
// nothing is ever put together from pieces of a request.
const (
	FileWord = "{file}"
	OutWord  = "{out}"
)

// Compile is what is done with the code before it can run.
type Compile struct {
	Command []string
	// Timeout bounds the step; it is never 0 in a registry.
	Timeout time.Duration
}

// compileEntry is a Compile as the file has it.
type compileEntry struct {
	Command []string `json:"command"`
	Timeout string   `json:"timeout,omitempty"`
}

// MarshalJSON writes the timeout as people do: "30s".
func (c Compile) MarshalJSON() ([]byte, error) {
	e := compileEntry{Command: c.Command}
	if c.Timeout != 0 {
		e.Timeout = c.Timeout.String()
	}
	return json.Marshal(e)
}

// UnmarshalJSON reads it.
func (c *Compile) UnmarshalJSON(data []byte) error {
	var e compileEntry
	if err := strictly(data, &e); err != nil {
		return err
	}
	c.Command, c.Timeout = e.Command, DefaultCompileTimeout
	if e.Timeout == "" {
		return nil
	}
	timeout, err := time.ParseDuration(e.Timeout)
	if err != nil {
		return fmt.Errorf("timeout %q is no duration such as 30s", clip(e.Timeout))
	}
	c.Timeout = timeout
	return nil
}

// RunCommand is the command that runs the code, which is in file; out is what
// the compile step made of it, where there is one.
func (l Language) RunCommand(file, out string, args []string) []string {
	return slices.Concat(fill(l.Command, file, out), args)
}

// CompileCommand is the command of the compile step, or nil.
func (l Language) CompileCommand(file, out string) []string {
	if l.Compile == nil {
		return nil
	}
	return fill(l.Compile.Command, file, out)
}

func fill(words []string, file, out string) []string {
	filled := make([]string, len(words))
	for i, w := range words {
		switch w {
		case FileWord:
			w = file
		case OutWord:
			w = out
		}
		filled[i] = w
	}
	return filled
}

// Programs are what an image must have for the language to be active.
func (l Language) Programs() []string {
	if len(l.Needs) > 0 {
		return l.Needs
	}
	var all []string
	if l.Compile != nil {
		all = append(all, l.Compile.Command[0])
	}
	if first := l.Command[0]; !strings.HasPrefix(first, "{") && !slices.Contains(all, first) {
		all = append(all, first)
	}
	return all
}

// words are the name and the aliases.
func (l Language) words() []string { return append([]string{l.Name}, l.Aliases...) }

// Status says of a language how code of it runs on a worker, and whether it
// can: that depends on the image.
type Status struct {
	Name    string   `json:"name"`
	Aliases []string `json:"aliases,omitempty"`
	File    string   `json:"file"` // that the code goes into
	// Compiled says that a compile step goes before the program.
	Compiled bool `json:"compiled,omitempty"`
	// Image is the one that code runs in where nobody names another; "" is the
	// driver's own.
	Image  string `json:"image,omitempty"`
	Active bool   `json:"active"`
	// Reason is why it is not active.
	Reason string `json:"reason,omitempty"`
}
