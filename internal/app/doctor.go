package app

import (
	"context"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/aurea-dev/aurea/internal/blob/s3"
	"github.com/aurea-dev/aurea/internal/cgroup"
	"github.com/aurea-dev/aurea/internal/cli"
	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/doctor"
	"github.com/aurea-dev/aurea/internal/driver/gvisor/embedded"
	"github.com/aurea-dev/aurea/internal/spawn"
)

// Doctor looks at this machine.
func Doctor(ctx context.Context, s cli.Start) doctor.Report {
	cfg := s.Config
	// A release build extracts its binaries to be looked at; not into the
	// worker's folder, which may be another user's.
	dir, err := os.MkdirTemp("", "aurea-doctor-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	var bin embedded.Binaries
	if err == nil {
		bin, err = embedded.Find(dir)
	}
	superuser := os.Geteuid() == 0
	var rootless error
	if !superuser {
		rootless = spawn.Rootless()
	}
	name, _ := cfg.Bucket()
	return doctor.Examine(ctx, doctor.Options{
		Bucket: name, Reach: func(ctx context.Context) error { return s3.Reach(ctx, bucketConfig(cfg, nil)) },
		Version: s.Version, Chosen: cfg.Driver, Sentry: bin.Sentry, Guest: bin.Guest, BinariesErr: err,
		Data: cfg.SandboxBase, DockerHost: cfg.DockerHost, Root: "/", Superuser: superuser, Rootless: rootless,
		Limited: map[cgroup.Controller]bool{cgroup.CPU: cfg.Limits.MilliCPU > 0, cgroup.Memory: cfg.Limits.Memory > 0},
	})
}

// Diagnose packs what support needs to know.
func Diagnose(ctx context.Context, s cli.Start, logs []string, w io.Writer) error {
	cfg := s.Config
	report := Doctor(ctx, s)
	found, _ := filepath.Glob(filepath.Join(cfg.Data, "*.log")) // the pattern is good
	more, _ := filepath.Glob(filepath.Join(cfg.Data, "log", "*"))
	return doctor.Bundle{
		Report: report,
		Versions: map[string]string{
			"aurea": s.Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH, "kernel": report.Kernel,
		},
		Settings: cfg.Show(),
		Logs:     append(append(logs, found...), more...),
		Panics: []string{
			filepath.Join(cfg.SandboxBase, "driver", "*", "box", "*", "panic.log*"),
			filepath.Join(cfg.SandboxBase, "driver", "*", "panic", "*"),
		},
		Secrets: secrets(cfg),
	}.Write(w)
}

// secrets are those that this installation has, so that they can be recognised.
func secrets(cfg *config.Config) []string {
	list := []string{cfg.Key.Reveal(), cfg.Access.DirectorKey.Reveal(), cfg.S3.SecretKey.Reveal(), cfg.S3.SessionToken.Reveal()}
	for _, load := range []func() (string, error){cfg.LoadKey, cfg.LoadDirectorKey} {
		if key, err := load(); err == nil {
			list = append(list, key)
		}
	}
	if u, err := url.Parse(cfg.DatabaseURL.Reveal()); err == nil {
		password, _ := u.User.Password()
		list = append(list, password, u.Query().Get("password"))
	}
	files, _ := filepath.Glob(filepath.Join(cfg.KeyDir(), "*")) // the pattern is good
	for _, path := range append(files, cfg.Runs.HookSecretFile, cfg.Fleet.SecretFile, cfg.S3.CredentialsFile) {
		if body, err := os.ReadFile(path); err == nil {
			list = append(list, strings.TrimSpace(string(body)))
			for line := range strings.Lines(string(body)) { // some have one in each
				list = append(list, strings.TrimSpace(line))
			}
		}
	}
	return list
}
