package config

import "time"

// Keep is how long what is over is kept; 0 is for good.
type Keep struct {
	Jobs       time.Duration
	Events     time.Duration
	Output     time.Duration
	Snapshots  time.Duration
	Workspaces time.Duration
	Audit      time.Duration
}

func retentionSettings() []setting {
	manager, both := []Role{Up, Manager}, []Role{Up, Manager, Worker}
	const year = "8760h"
	row := func(key, env, flag string, roles []Role, help string, to func(*Config) *time.Duration) setting {
		return setting{
			key: key, env: env, flag: flag, roles: roles, init: year, help: help + "; 0 is for good",
			at: func(c *Config) value { return durationValue{to(c), 0, 100 * 365 * 24 * time.Hour} },
		}
	}
	return []setting{
		row("keep_jobs", "AUREA_KEEP_JOBS", "keep-jobs", manager, "how long plans that ended are kept, with their jobs and the records of their tries",
			func(c *Config) *time.Duration { return &c.Keep.Jobs }),
		row("keep_events", "AUREA_KEEP_EVENTS", "keep-events", manager, "how long events are kept; who asks for older ones is told of the gap",
			func(c *Config) *time.Duration { return &c.Keep.Events }),
		row("keep_output", "AUREA_KEEP_OUTPUT", "keep-output", manager, "how long what jobs printed and left is kept; the records stay as long as the jobs",
			func(c *Config) *time.Duration { return &c.Keep.Output }),
		row("keep_snapshots", "AUREA_KEEP_SNAPSHOTS", "keep-snapshots", both, "how long snapshots of workspaces are kept, by the manager and by the worker that took them",
			func(c *Config) *time.Duration { return &c.Keep.Snapshots }),
		row("keep_workspaces", "AUREA_KEEP_WORKSPACES", "keep-workspaces", []Role{Up, Worker}, "how long a worker keeps the workspaces of jobs that ended",
			func(c *Config) *time.Duration { return &c.Keep.Workspaces }),
		row("keep_audit", "AUREA_KEEP_AUDIT", "keep-audit", manager, "how long the records of the audit are kept before a director may purge them; nothing else removes them",
			func(c *Config) *time.Duration { return &c.Keep.Audit }),
	}
}
