package config

import "time"

// Sandboxes is how sandboxes are kept.
type Sandboxes struct {
	TTL, MaxTTL time.Duration // 0 is for ever
	Idle        time.Duration
	Provision   time.Duration
	Away        time.Duration
	ExecTimeout time.Duration
	ExecOutput  Bytes // of each stream
	MaxMemory   Bytes
	MaxCPU      int64 // thousandths of a processor
	// SessionAge and SessionIdle are how long a session may live, and be of no
	// use to anybody; SessionsOnStop is what becomes of them when the manager
	// stops.
	SessionAge, SessionIdle time.Duration
	SessionsOnStop          string
	// Measured is how many have figures of their own among the metrics.
	Measured int
	// StorageQuota bounds the stored files of a session, StorageFile each.
	StorageQuota, StorageFile Bytes
}

func sandboxSettings() []setting {
	own := []Role{Up, Manager}
	const year = 365 * 24 * time.Hour
	return []setting{
		{
			key: "sandbox_ttl", env: "AUREA_SANDBOX_TTL", flag: "sandbox-ttl", roles: own, init: "1h",
			help: "how long a sandbox lives that names no `ttl`; 0 is for ever",
			at:   func(c *Config) value { return durationValue{&c.Sandboxes.TTL, 0, year} },
		},
		{
			key: "sandbox_max_ttl", env: "AUREA_SANDBOX_MAX_TTL", flag: "sandbox-max-ttl", roles: own, init: "24h",
			help: "the longest that a sandbox may ask for; 0 is no bound",
			at:   func(c *Config) value { return durationValue{&c.Sandboxes.MaxTTL, 0, year} },
		},
		{
			key: "sandbox_idle", env: "AUREA_SANDBOX_IDLE", flag: "sandbox-idle", roles: own, init: "0",
			help: "how long a sandbox may be of no use to anybody that names no `idle_timeout`; 0 is for ever",
			at:   func(c *Config) value { return durationValue{&c.Sandboxes.Idle, 0, year} },
		},
		{
			key: "sandbox_provision", env: "AUREA_SANDBOX_PROVISION", flag: "sandbox-provision", roles: own, init: "5m",
			help: "how long a sandbox may take to be made before it has failed",
			at:   func(c *Config) value { return durationValue{&c.Sandboxes.Provision, time.Second, time.Hour} },
		},
		{
			key: "sandbox_away", env: "AUREA_SANDBOX_AWAY", flag: "sandbox-away", roles: own, init: "5m",
			help: "how long a worker may be away before its sandboxes count as lost",
			at:   func(c *Config) value { return durationValue{&c.Sandboxes.Away, 5 * time.Second, year} },
		},
		{
			key: "session_age", env: "AUREA_SESSION_AGE", flag: "session-age", roles: own, init: "30m",
			help: "how long a session may live, from its start",
			at:   func(c *Config) value { return durationValue{&c.Sandboxes.SessionAge, time.Second, year} },
		},
		{
			key: "session_idle", env: "AUREA_SESSION_IDLE", flag: "session-idle", roles: own, init: "30m",
			help: "how long a session may be of no use to anybody, unless it is paused",
			at:   func(c *Config) value { return durationValue{&c.Sandboxes.SessionIdle, time.Second, year} },
		},
		{
			key: "sessions_on_stop", env: "AUREA_SESSIONS_ON_STOP", flag: "sessions-on-stop", roles: own, init: "keep",
			help: "what becomes of open sessions when the manager stops: `keep`, `pause`, or `end`",
			at: func(c *Config) value {
				return textValue{to: &c.Sandboxes.SessionsOnStop, some: true, of: []string{"keep", "pause", "end"}}
			},
		},
		{
			key: "exec_timeout", env: "AUREA_EXEC_TIMEOUT", flag: "exec-timeout", roles: own, init: "5m",
			help: "how long a command in a sandbox may run that names no `timeout`",
			at:   func(c *Config) value { return durationValue{&c.Sandboxes.ExecTimeout, time.Second, year} },
		},
		{
			key: "exec_output", env: "AUREA_EXEC_OUTPUT", flag: "exec-output", roles: own, init: "100MiB",
			help: "how much of stdout, and of stderr, is kept of a command in a sandbox; at most 1GiB",
			at:   func(c *Config) value { return &c.Sandboxes.ExecOutput },
		},
		{
			key: "sandbox_max_memory", env: "AUREA_SANDBOX_MAX_MEMORY", flag: "sandbox-max-memory", roles: own, init: "8GiB",
			help: "the most memory that a sandbox may ask for; 0 is no bound",
			at:   func(c *Config) value { return &c.Sandboxes.MaxMemory },
		},
		{
			key: "sandbox_max_cpu", env: "AUREA_SANDBOX_MAX_CPU", flag: "sandbox-max-cpu", roles: own, init: "4.0",
			help: "the most processors that a sandbox may ask for; 0 is no bound",
			at:   func(c *Config) value { return cpuValue{&c.Sandboxes.MaxCPU} },
		},
		{
			key: "metrics_sandboxes", env: "AUREA_METRICS_SANDBOXES", flag: "metrics-sandboxes", roles: own, init: "0",
			help: "how many sandboxes, the largest first, have figures of their own at `/metrics`; at most 100",
			at:   func(c *Config) value { return intValue{&c.Sandboxes.Measured, 0, 100} },
		},
		{
			key: "storage_quota", env: "STORAGE_QUOTA_LIMIT_BYTES", flag: "storage-quota", roles: own, init: "100MiB",
			help: "how much the stored files of a session may have, older versions included; 0 is the default",
			at:   func(c *Config) value { return &c.Sandboxes.StorageQuota },
		},
		{
			key: "storage_file_limit", env: "AUREA_STORAGE_FILE_LIMIT", flag: "storage-file-limit", roles: own, init: "10MiB",
			help: "how much one stored file of a session may have; at most 256MiB, 0 is the default",
			at:   func(c *Config) value { return &c.Sandboxes.StorageFile },
		},
	}
}
