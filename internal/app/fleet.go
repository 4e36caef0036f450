package app

import (
	"path/filepath"

	"github.com/aurea-dev/aurea/internal/config"
	"github.com/aurea-dev/aurea/internal/governor"
	"github.com/aurea-dev/aurea/internal/manager"
	papers "github.com/aurea-dev/aurea/internal/manifest" // a manifest here is that of a backup
	"github.com/aurea-dev/aurea/internal/metric"
)

// fleetTerms are the terms under which a manager governs the fleet.
func fleetTerms(cfg *config.Config, figures *metric.Metrics) (t manager.FleetTerms, err error) {
	var secrets []papers.Secret
	if cfg.Fleet.SecretFile != "" {
		if secrets, err = governor.ReadSecrets(cfg.Fleet.SecretFile); err != nil {
			return t, err
		}
	}
	keys, err := governor.OpenKeyFile(filepath.Join(cfg.KeyDir(), "manifest.key"), secrets)
	if err != nil {
		return t, err
	}
	hooks, err := hookTerms(cfg)
	return manager.FleetTerms{
		Keys: keys, Silence: cfg.Fleet.Heartbeat, Validity: cfg.Fleet.Validity, Hooks: hooks,
		Observe: func(e papers.Enforcement) { figures.Enforced(e.Breach != "") }, Fired: figures.Fired,
	}, err
}
