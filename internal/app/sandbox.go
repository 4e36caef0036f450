package app

import (
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/filesync"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/manager"
)

// maxStoredFile bounds what is held in memory of a file that is synced.
const maxStoredFile = 256 << 20

// sandboxTerms are the terms under which a manager keeps sandboxes.
func sandboxTerms(cfg *config.Config) manager.SandboxTerms {
	s := cfg.Sandboxes
	return manager.SandboxTerms{
		Terms: live.Terms{
			TTL: s.TTL, MaxTTL: s.MaxTTL, Idle: s.Idle,
			Most:        mostLimits(s.MaxCPU, int64(s.MaxMemory), 0), // their time is their own
			ExecTimeout: s.ExecTimeout, OutputCap: min(int64(s.ExecOutput), dispatch.MaxExecOutput),
		},
		Provision: s.Provision, Back: s.Away,
		Files: filesync.Limits{Bytes: int64(s.StorageQuota), FileBytes: min(int64(s.StorageFile), maxStoredFile)},
	}
}
