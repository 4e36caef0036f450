package config

import "time"

// Fleet is how the fleet is governed.
type Fleet struct {
	Heartbeat time.Duration // how long a worker may be silent
	Validity  time.Duration // of a manifest that waits to be used
	// SecretFile holds what manifests are signed with in the older form; "" is
	// that the manager's own key signs.
	SecretFile string
}

func fleetSettings() []setting {
	own := []Role{Up, Manager}
	return []setting{
		{
			key: "fleet_heartbeat", env: "AUREA_FLEET_HEARTBEAT", flag: "fleet-heartbeat", roles: own, init: "60s",
			help: "how long a worker of the fleet may send no heartbeat before it is ended",
			at:   func(c *Config) value { return durationValue{&c.Fleet.Heartbeat, time.Second, 24 * time.Hour} },
		},
		{
			key: "manifest_validity", env: "AUREA_MANIFEST_VALIDITY", flag: "manifest-validity", roles: own, init: "15m",
			help: "how long a manifest can be used after it was issued",
			at:   func(c *Config) value { return durationValue{&c.Fleet.Validity, time.Second, 24 * time.Hour} },
		},
		{
			key: "manifest_secret_file", env: "AUREA_MANIFEST_SECRET_FILE", flag: "manifest-secret-file", roles: own,
			help: "file with secrets of at least 8 characters, one in each line, with which manifests are signed by HMAC-SHA256: the first signs, all are good; without it the manager's own Ed25519 key signs",
			at:   text(func(c *Config) *string { return &c.Fleet.SecretFile }),
		},
	}
}
