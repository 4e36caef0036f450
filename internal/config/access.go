package config

import (
	"path/filepath"
	"strings"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Access is who is let in, how, and how often.
type Access struct {
	// DirectorKey makes who sends it a director; "" is that there is none.
	DirectorKey     Secret
	DirectorKeyFile string
	// TLSCert and TLSKey are files; both or none.
	TLSCert, TLSKey string
	Rates           Rates
}

// Rates is how many requests of a class a key may send in a minute; 0 is no
// bound.
type Rates struct {
	Read, Submit, Exec, Control int
	// Failures is how many wrong keys an address may show in a minute.
	Failures int
	Local    string // "on" bounds callers without a key too
}

const maxRate = 100_000_000

func accessSettings() []setting {
	doors := []Role{Up, Manager, Bridge}
	own, who := []Role{Up, Manager}, []Role{Up, Manager, Client}
	rate := func(key, env, usual, help string, to func(*Config) *int) setting {
		return setting{key: key, env: env, roles: own, init: usual, help: help, at: func(c *Config) value { return intValue{to(c), 0, maxRate} }}
	}
	return []setting{
		{
			key: "director_key", env: "DIRECTOR_API_KEY", roles: who,
			help: "secret, at least 16 characters, that makes a director of who sends it as the header `x-director-key`; while it is set, callers without a key need it to purge and to re-arm. Commands send it along",
			at:   func(c *Config) value { return handedValue{&c.Access.DirectorKey} },
		},
		{
			key: "director_key_file", env: "AUREA_DIRECTOR_KEY_FILE", flag: "director-key-file", roles: who,
			help: "file that holds the director's secret; the manager's user must be able to read it",
			at:   text(func(c *Config) *string { return &c.Access.DirectorKeyFile }),
		},
		{
			key: "tls_cert", env: "AUREA_TLS_CERT", flag: "tls-cert", roles: doors,
			help: "file with the certificate of the server and those that lead to its root, as PEM; it is read again when it changes. Who comes from another machine without TLS is then refused",
			at:   text(func(c *Config) *string { return &c.Access.TLSCert }),
		},
		{
			key: "tls_key", env: "AUREA_TLS_KEY", flag: "tls-key", roles: doors,
			help: "file with the private key of that certificate, as PEM",
			at:   text(func(c *Config) *string { return &c.Access.TLSKey }),
		},
		rate("rate_read", "AUREA_RATE_READ", "12000", "how often a key may look at something, in a minute; 0 is no bound", func(c *Config) *int { return &c.Access.Rates.Read }),
		rate("rate_submit", "AUREA_RATE_SUBMIT", "6000", "how often a key may submit plans, runs, sandboxes and the like, in a minute; 0 is no bound", func(c *Config) *int { return &c.Access.Rates.Submit }),
		rate("rate_exec", "AUREA_RATE_EXEC", "12000", "how often a key may start commands in sandboxes, in a minute; 0 is no bound", func(c *Config) *int { return &c.Access.Rates.Exec }),
		rate("rate_control", "AUREA_RATE_CONTROL", "6000", "how often a key may steer or change something, in a minute; 0 is no bound", func(c *Config) *int { return &c.Access.Rates.Control }),
		rate("rate_failures", "AUREA_RATE_FAILURES", "1200", "how many wrong keys may come from one address in a minute before it is refused; 0 is no bound", func(c *Config) *int { return &c.Access.Rates.Failures }),
		{
			key: "rate_local", env: "AUREA_RATE_LOCAL", roles: own, init: "off",
			help: "whether callers that need no key are bounded too: `on` or `off`",
			at: func(c *Config) value {
				return textValue{to: &c.Access.Rates.Local, some: true, of: []string{"on", "off"}}
			},
		},
	}
}

// LoadDirectorKey returns the director's secret: the one that was set, or what
// its file holds; "" when neither is.
func (c *Config) LoadDirectorKey() (string, error) {
	a := &c.Access
	if a.DirectorKeyFile == "" {
		return a.DirectorKey.Reveal(), nil
	}
	text, err := readSome(a.DirectorKeyFile, maxKeyFile+1)
	if err != nil {
		return "", fault.New(fault.Invalid, "read the director's key: %w", err).WithCode("bad_setting")
	}
	secret := strings.TrimSpace(string(text))
	if len(secret) < minDirectorKey || len(secret) > maxDirectorKey || strings.ContainsAny(secret, "\r\n\x00") {
		return "", bad("director_key_file", "%s must hold one line of %d to %d characters", a.DirectorKeyFile, minDirectorKey, maxDirectorKey)
	}
	return secret, nil
}

// minDirectorKey is the least length of a secret that cannot be guessed.
const minDirectorKey, maxDirectorKey = 16, 512

func (c *Config) checkAccess() error {
	a := &c.Access
	switch {
	case a.DirectorKey != "" && a.DirectorKeyFile != "":
		return bad("director_key", "it is set, and director_key_file too; set only one of them")
	case a.DirectorKey != "" && (len(a.DirectorKey) < minDirectorKey || len(a.DirectorKey) > maxDirectorKey):
		return bad("director_key", "must have from %d to %d characters", minDirectorKey, maxDirectorKey)
	case (a.TLSCert == "") != (a.TLSKey == ""):
		return bad("tls_cert", "a certificate and its key are set together")
	case a.TLSCert != "" && (!filepath.IsAbs(a.TLSCert) || !filepath.IsAbs(a.TLSKey)):
		return bad("tls_cert", "the paths of the certificate and its key must be absolute")
	}
	return nil
}
