package run

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
)

// Inputs are the digests of what a program was given beside its code, so that a
// record says what ran once the bytes are gone. What was not given is not there.
type Inputs struct {
	Files map[string]string `json:"files,omitempty"` // SHA-256 by name
	Stdin string            `json:"stdin_sha256,omitempty"`
	// Args and Env are hashed as a kernel shows them: each word with a NUL
	// behind it; variables as NAME=VALUE, in the order of their names.
	Args string `json:"args_sha256,omitempty"`
	Env  string `json:"env_sha256,omitempty"`
}

// Inputs returns the digests of what an order hands over; nil is nothing.
func (o *Order) Inputs() *Inputs {
	var in Inputs
	for name, text := range o.Files {
		if in.Files == nil {
			in.Files = map[string]string{}
		}
		in.Files[name] = digest(text)
	}
	if o.Stdin != "" {
		in.Stdin = digest(o.Stdin)
	}
	if len(o.Args) > 0 {
		in.Args = digest(ended(o.Args)...)
	}
	if len(o.Env) > 0 {
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(o.Env)) {
			pairs = append(pairs, name+"="+o.Env[name])
		}
		in.Env = digest(ended(pairs)...)
	}
	if in.Files == nil && in.Stdin == "" && in.Args == "" && in.Env == "" {
		return nil
	}
	return &in
}

// ended puts a NUL behind each word: no word of an order has one in it.
func ended(words []string) []string {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = w + "\x00"
	}
	return list
}

func digest(parts ...string) string {
	sum := sha256.New()
	for _, p := range parts {
		_, _ = sum.Write([]byte(p)) // never fails
	}
	return hex.EncodeToString(sum.Sum(nil))
}
