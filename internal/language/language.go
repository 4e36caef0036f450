// Package language is the registry of languages: which file code goes into,
// which command runs it, what is compiled before, how an interpreter waits.
// A language is an entry of a file, never code.
package language

import "time"

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

// Compile is what is done with the code before it can run.
type Compile struct {
	Command []string      `json:"command"`
	Timeout time.Duration `json:"timeout_ns,omitempty"`
}
