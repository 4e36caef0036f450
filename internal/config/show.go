package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Effective is one setting as it stands.
type Effective struct {
	Key      string `json:"key"`
	Value    string `json:"value"`
	Origin   Origin `json:"origin"`
	Variable string `json:"variable"`
	Flag     string `json:"flag,omitempty"`
}

// Show returns every setting with its value and where that came from. Secrets
// are hidden.
func (c *Config) Show() []Effective {
	var list []Effective
	for _, s := range settings() {
		if s.quiet {
			continue
		}
		list = append(list, Effective{Key: s.key, Value: s.at(c).String(), Origin: c.origins[s.key], Variable: s.env, Flag: s.flag})
	}
	return list
}

// Flag describes a flag that a command offers.
type Flag struct {
	Name    string
	Default string
	Help    string
}

// Flags lists the flags of the settings that a role reads.
func Flags(role Role) []Flag {
	var list []Flag
	for _, s := range settings() {
		if s.flag != "" && s.forRole(role) {
			list = append(list, Flag{Name: s.flag, Default: s.init, Help: strings.ReplaceAll(s.help, "`", "'") + " (" + s.env + ")"})
		}
	}
	return list
}

// AllFlags lists every flag of every role, for the command that shows the
// settings.
func AllFlags() []Flag {
	var list []Flag
	for _, s := range settings() {
		if s.flag != "" {
			list = append(list, Flag{Name: s.flag, Default: s.init, Help: strings.ReplaceAll(s.help, "`", "'") + " (" + s.env + ")"})
		}
	}
	return list
}

// Environ returns the settings that a role reads as variables, and nothing
// else: it is how the supervisor hands a child what it needs and no more.
// Changes that the caller made to c take part. Secrets are left out; a child
// gets the name of a key file.
func (c *Config) Environ(role Role) []string {
	var vars []string
	for _, s := range settings() {
		v := s.at(c)
		if _, secret := v.(*Secret); secret || !s.forRole(role) {
			continue
		}
		text := v.String()
		switch v := v.(type) {
		case addressValue:
			text = v.to.Reveal()
		case handedValue:
			text = v.to.Reveal()
		}
		if text != "" {
			vars = append(vars, s.env+"="+text)
		}
	}
	return vars
}

// inherited are variables of the host that every child may see.
func inherited() []string {
	return []string{"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK", "GOCOVERDIR", "GORACE"}
}

// Inherited returns those of the process's own variables that any child may
// see: what a program needs to run at all, and never a secret.
func Inherited() []string {
	var vars []string
	own := environment(os.Environ()) //nolint:forbidigo // this is the place where it is read
	for _, name := range inherited() {
		if value, ok := own[name]; ok {
			vars = append(vars, name+"="+value)
		}
	}
	return vars
}

// maxKeyFile is far above any key and far below what hurts.
const maxKeyFile = 4096

// keyPrefix begins every key.
const keyPrefix = "aurea_"

// LoadKey returns the key to show to the manager: the one that was set, or
// what the key file holds; "" when neither is.
//
// A worker that is root reads its key from a folder that belongs to the manager,
// and shows it to the manager. What does not look like a key is therefore never
// taken for one: a link in place of the file must not make a worker tell what
// else there is on its host.
func (c *Config) LoadKey() (string, error) {
	if c.Key != "" || c.KeyFile == "" {
		return c.Key.Reveal(), nil
	}
	text, err := readSome(c.KeyFile, maxKeyFile+1)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", bad("key_file", "%s does not exist", c.KeyFile)
	case err != nil:
		return "", fault.New(fault.Invalid, "read the key file: %w", err).WithCode("bad_setting")
	}
	key := strings.TrimSpace(string(text))
	if !strings.HasPrefix(key, keyPrefix) || len(text) > maxKeyFile || strings.ContainsAny(key, "\r\n\x00") {
		return "", bad("key_file", "%s does not hold one line with a key", c.KeyFile)
	}
	return key, nil
}

// readSome reads at most so much of a file.
func readSome(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, most))
}

// Markdown writes both tables, for the documentation.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| key | variable | flag | default | meaning |\n|---|---|---|---|---|\n")
	for _, s := range settings() {
		if s.quiet {
			continue
		}
		init, flag := s.shown, ""
		if init == "" && s.init != "" {
			init = "`" + s.init + "`"
		}
		if s.flag != "" {
			flag = "`--" + s.flag + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", s.key, s.env, flag, init, s.help)
	}
	b.WriteString("\n## Variables of earlier systems\n\n")
	b.WriteString("| variable | standing | if it is set, it | remarks |\n|---|---|---|---|\n")
	for _, v := range variables() {
		remark := v.reason
		if v.standing == Alias {
			remark = "`" + v.of + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", v.name, v.standing, v.whenSet(), remark)
	}
	return b.String()
}
