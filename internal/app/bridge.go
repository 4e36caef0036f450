package app

import (
	"context"
	"strings"

	"github.com/aurea-dev/aurea/internal/cli"
	"github.com/aurea-dev/aurea/internal/mcpapi"
	"github.com/aurea-dev/aurea/internal/service"
)

// Bridge runs a bridge until ctx ends. It knows the manager's address and a
// key, and keeps nothing.
func Bridge(ctx context.Context, s cli.Start) error {
	defer outlive()()
	log, cfg := begin(s), s.Config
	key, err := cfg.LoadKey()
	if err != nil {
		return err
	}
	h, err := mcpapi.New(mcpapi.Config{
		ManagerURLs: cfg.ManagerURLs, Key: key, Loopback: cfg.Loopback(), Hosts: cfg.HostNames, Origins: cfg.Origins, Logger: log,
	})
	if err != nil {
		return err
	}
	cert, err := loadCertificate(cfg, log)
	if err != nil {
		return err
	}
	return service.Group{
		Logger: log, Hurry: s.Hurry,
		Parts: []service.Part{{Name: "http", Service: service.NewHTTP(newServer(h, log), secured(cert, listener(cfg.ListenFD, cfg.BridgeAddress())))}},
		Ready: func() {
			log.Info("bridge serves", "address", cfg.BridgeAddress(), "manager", strings.Join(cfg.ManagerURLs, ","))
		},
	}.Run(ctx)
}
