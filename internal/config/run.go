package config

import "time"

// Runs is how runs of code are taken.
type Runs struct {
	Timeout   int // seconds, of a run that names none
	Queue     int // how many may wait
	Patience  time.Duration
	Output    Bytes // of each stream
	MaxMemory Bytes
	MaxCPU    int64 // thousandths of a processor
	// HookSecretFile holds what webhooks are signed with; "" is no webhooks.
	HookSecretFile string
	HookPrivate    string // "on" or "off"
}

func runSettings() []setting {
	own := []Role{Up, Manager}
	return []setting{
		{
			key: "default_timeout", env: "SANDBOX_DEFAULT_TIMEOUT", flag: "default-timeout", roles: own, init: "30",
			help: "how many seconds a run may take that names no timeout; at most 300",
			at:   func(c *Config) value { return intValue{&c.Runs.Timeout, 1, 300} },
		},
		{
			key: "run_queue", env: "AUREA_RUN_QUEUE", flag: "run-queue", roles: own, init: "10000",
			help: "how many runs may wait for a worker; beyond it they are refused with 429",
			at:   func(c *Config) value { return intValue{&c.Runs.Queue, 1, 1 << 20} },
		},
		{
			key: "run_patience", env: "AUREA_RUN_PATIENCE", flag: "run-patience", roles: own, init: "30s",
			help: "how long `POST /run` waits for a worker with room before it answers 429",
			at:   func(c *Config) value { return durationValue{&c.Runs.Patience, time.Millisecond, 10 * time.Minute} },
		},
		{
			key: "run_output", env: "AUREA_RUN_OUTPUT", flag: "run-output", roles: own, init: "4MiB",
			help: "how much of stdout, and of stderr, is kept of one run; at most 64MiB",
			at:   func(c *Config) value { return &c.Runs.Output },
		},
		{
			key: "run_max_memory", env: "AUREA_RUN_MAX_MEMORY", flag: "run-max-memory", roles: own, init: "2GiB",
			help: "the most memory that a run may ask for; 0 is no bound",
			at:   func(c *Config) value { return &c.Runs.MaxMemory },
		},
		{
			key: "run_max_cpu", env: "AUREA_RUN_MAX_CPU", flag: "run-max-cpu", roles: own, init: "4.0",
			help: "the most processors that a run may ask for; 0 is no bound",
			at:   func(c *Config) value { return cpuValue{&c.Runs.MaxCPU} },
		},
		{
			key: "webhook_secret_file", env: "AUREA_WEBHOOK_SECRET_FILE", flag: "webhook-secret-file", roles: own,
			help: "file that holds the secret with which webhooks are signed, at least 16 bytes; without it a run that names a webhook is refused",
			at:   text(func(c *Config) *string { return &c.Runs.HookSecretFile }),
		},
		{
			key: "webhook_private", env: "AUREA_WEBHOOK_PRIVATE", flag: "webhook-private", roles: own, init: "off",
			help: "whether webhooks may go to addresses of this machine and of private networks, and without TLS: `on` or `off`",
			at: func(c *Config) value {
				return textValue{to: &c.Runs.HookPrivate, some: true, of: []string{"on", "off"}}
			},
		},
	}
}
