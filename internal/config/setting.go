package config

import (
	"slices"
	"strings"
	"time"
)

// Role is a way in which the binary is started; each role reads only its own
// settings, and gets only its own from the supervisor.
type Role string

// The roles. Client stands for every command that asks a manager.
const (
	Up      Role = "up"
	Manager Role = "manager"
	Worker  Role = "worker"
	Bridge  Role = "bridge"
	Client  Role = "client"
)

// setting is one row: a thing that can be set.
type setting struct {
	key   string // in the file
	env   string // variable
	flag  string // without dashes; "" has none
	roles []Role // who reads it
	init  string // default; "" with shown where it depends on the machine
	shown string // how the docs write a default that depends on the machine
	help  string // one line
	quiet bool   // set by the supervisor only; not documented
	empty bool   // an empty variable is a value, and does not count as not set
	at    func(*Config) value
}

// names says how people set it: "--port, PORT or port".
func (s setting) names() string {
	var names []string
	if s.flag != "" {
		names = append(names, "--"+s.flag)
	}
	return strings.Join(append(names, s.env), "/")
}

func (s setting) forRole(r Role) bool { return r == "" || slices.Contains(s.roles, r) }

// text is a plain text place.
func text(to func(*Config) *string) func(*Config) value {
	return func(c *Config) value { return textValue{to: to(c)} }
}

func some(to func(*Config) *string) func(*Config) value {
	return func(c *Config) value { return textValue{to: to(c), some: true} }
}

// settings is the table.
func settings() []setting {
	return slices.Concat(serverSettings(), accessSettings(), s3Settings(), workerSettings(), imageSettings(), capacitySettings(), limitSettings(), queueSettings(), runSettings(), sandboxSettings(), fleetSettings(), retentionSettings(), sharedSettings())
}

const maxPort = 65535

func serverSettings() []setting {
	doors := []Role{Up, Manager, Bridge}
	return []setting{
		{
			key: "host", env: "HOST", flag: "host", roles: doors, init: "127.0.0.1",
			help: "address to listen on; anything but loopback asks callers for keys",
			at:   some(func(c *Config) *string { return &c.Host }),
		},
		{
			key: "port", env: "PORT", flag: "port", roles: []Role{Up, Manager}, init: "8000",
			help: "port of the manager; 0 takes a free one",
			at:   func(c *Config) value { return intValue{&c.Port, 0, maxPort} },
		},
		{
			key: "bridge_port", env: "BRIDGE_PORT", flag: "bridge-port", roles: []Role{Up, Bridge}, init: "9000",
			help: "port of the bridge; 0 takes a free one",
			at:   func(c *Config) value { return intValue{&c.BridgePort, 0, maxPort} },
		},
		{
			key: "host_names", env: "AUREA_HOST_NAMES", flag: "host-names", roles: doors,
			help: "further names, separated by commas, under which callers may address the server",
			at:   func(c *Config) value { return listValue{&c.HostNames} },
		},
		{
			key: "origins", env: "AUREA_ORIGINS", flag: "origins", roles: doors,
			help: "sites, separated by commas, such as `https://console.example`, whose pages may change things and open WebSockets",
			at:   func(c *Config) value { return listValue{&c.Origins} },
		},
		{
			key: "data", env: "AUREA_DATA", flag: "data", roles: []Role{Up, Manager, Worker}, shown: "`/var/lib/aurea` for root, else `$XDG_STATE_HOME/aurea`",
			help: "folder that holds everything: database, blobs, keys, and sandboxes unless SANDBOX_BASE is set",
			at:   some(func(c *Config) *string { return &c.Data }),
		},
		{
			key: "database_url", env: "DATABASE_URL", roles: []Role{Up, Manager},
			help: "database of the manager, as `sqlite:PATH`, or as `postgres://USER:PASSWORD@HOST/DATABASE`, which several managers may share; empty is `manager/aurea.db` in the data folder",
			at:   func(c *Config) value { return addressValue{&c.DatabaseURL} },
		},
		{
			key: "blobs", env: "AUREA_BLOBS", flag: "blobs", roles: []Role{Up, Manager}, shown: "`local` with SQLite, `database` with PostgreSQL",
			help: "where large artifacts and snapshots lie: `database`, `local` for the data folder, which with several managers must be one that they share, or `s3://BUCKET/PREFIX` for a bucket",
			at:   func(c *Config) value { return blobsValue{&c.Blobs} },
		},
		{
			key: "listen_fd", env: "AUREA_LISTEN_FD", roles: []Role{Manager, Bridge}, init: "0", quiet: true,
			help: "inherited socket to serve on; set by the supervisor",
			at:   func(c *Config) value { return intValue{&c.ListenFD, 0, 1 << 20} },
		},
	}
}

// workerSettings are about who a worker is.
func workerSettings() []setting {
	own := []Role{Up, Worker}
	return []setting{
		{
			key: "manager_url", env: "MANAGER_URL", flag: "manager-url", roles: []Role{Worker, Bridge}, init: "http://manager:8000",
			help: "where a worker or a bridge of its own finds the manager, or separated by commas several that share a database: when one is away the next is asked; `up` sets it for its own",
			at:   func(c *Config) value { return listValue{&c.ManagerURLs} },
		},
		{
			key: "worker_id", env: "WORKER_ID", flag: "worker-id", roles: own, init: "worker_default",
			help: "name of the worker; two live workers cannot share one",
			at:   some(func(c *Config) *string { return &c.WorkerID }),
		},
		{
			key: "worker_role", env: "WORKER_ROLE", flag: "worker-role", roles: own, init: "Employee",
			help: "role that the worker registers with; validations are taken only from workers of role `Validator`",
			at:   some(func(c *Config) *string { return &c.WorkerRole }),
		},
		{
			key: "worker_models", env: "WORKER_MODELS", flag: "worker-models", roles: own,
			help: "further names, separated by commas, that the worker answers to in the role map",
			at:   func(c *Config) value { return listValue{&c.WorkerModels} },
		},
		{
			key: "sandbox_base", env: "SANDBOX_BASE", flag: "sandbox-base", roles: own, shown: "`sandbox` in the data folder",
			help: "folder of the worker: workspaces, snapshots, spool, journals of leases",
			at:   some(func(c *Config) *string { return &c.SandboxBase }),
		},
		{
			key: "driver", env: "AUREA_DRIVER", flag: "driver", roles: own, init: "gvisor",
			help: "how sandboxes are made: `gvisor`, `docker`, or `fake` for tests and dry runs, which executes nothing",
			at: func(c *Config) value {
				return textValue{to: &c.Driver, some: true, of: []string{"gvisor", "docker", "fake"}}
			},
		},
	}
}

// imageSettings are about what sandboxes are made from.
func imageSettings() []setting {
	own := []Role{Up, Worker}
	return []setting{
		{
			key: "image", env: "SANDBOX_IMAGE", flag: "image", roles: own,
			help: "image of sandboxes that name none; with `docker` one that the engine has, with `gvisor` one that `aurea image ls` shows, else `host`",
			at:   text(func(c *Config) *string { return &c.Image }),
		},
		{
			key: "image_aliases", env: "AUREA_IMAGE_ALIASES", flag: "image-aliases", roles: own, init: "registry.fly.io/mobvibe-sandbox:latest=default",
			help: "what those get who ask for an image that is not there, as `registry.example/thing:latest=host,other:1=default`; `default` is the image of sandboxes that name none; in the file, a map",
			at:   func(c *Config) value { return mapValue{&c.ImageAliases} },
		},
		{
			key: "languages", env: "AUREA_LANGUAGES", flag: "languages", roles: []Role{Up, Manager, Worker, Client},
			help: "file of languages, laid over those that come with Aurea (docs/languages.md); manager and workers need the same",
			at:   text(func(c *Config) *string { return &c.Languages }),
		},
		{
			key: "images", env: "AUREA_IMAGES", flag: "images", roles: own, shown: "`images` in SANDBOX_BASE",
			help: "folder of images; workers and commands may share one",
			at:   text(func(c *Config) *string { return &c.Images }),
		},
		{
			key: "host_limit", env: "AUREA_HOST_LIMIT", flag: "host-limit", roles: own, init: "4GiB",
			help: "how much of the host's programs the image `host` takes; of a host that has more, the largest folders are left out, and named by `aurea image inspect host`",
			at:   func(c *Config) value { return &c.HostLimit },
		},
		{
			key: "insecure_registries", env: "AUREA_INSECURE_REGISTRIES", flag: "insecure-registries", roles: own,
			help: "registries, separated by commas, that may be spoken to without TLS; those on this machine always may",
			at:   func(c *Config) value { return listValue{&c.InsecureRegistries} },
		},
		{
			key: "dockerfiles", env: "AUREA_DOCKERFILES", flag: "dockerfiles", roles: own,
			help: "folder with Dockerfiles that `aurea image build` and `POST /build-image` can name, each in a folder of its own, before those that come along; empty is none",
			at:   text(func(c *Config) *string { return &c.Dockerfiles }),
		},
		{
			key: "docker_host", env: "DOCKER_HOST", flag: "docker-host", roles: own, init: "unix:///var/run/docker.sock",
			help: "address of the Docker Engine for the driver `docker` and for building images: a socket on this machine, or a proxy on the loopback as `tcp://127.0.0.1:PORT`",
			at:   some(func(c *Config) *string { return &c.DockerHost }),
		},
		{
			key: "docker_runtime", env: "AUREA_DOCKER_RUNTIME", flag: "docker-runtime", roles: own,
			help: "runtime of the Docker Engine to make containers with, such as `runsc`; empty is the engine's default",
			at:   text(func(c *Config) *string { return &c.DockerRuntime }),
		},
	}
}

// capacitySettings are about how much a worker takes on, and what it keeps.
func capacitySettings() []setting {
	own := []Role{Up, Worker}
	return []setting{
		{
			key: "concurrency", env: "AUREA_CONCURRENCY", flag: "concurrency", roles: own, init: "4",
			help: "how many jobs the worker does at once",
			at:   func(c *Config) value { return intValue{&c.Concurrency, 1, 1024} },
		},
		{
			key: "pool", env: "AUREA_POOL", flag: "pool", roles: own, init: "bash=1,javascript=1,python=2", empty: true,
			help: "how many fresh sandboxes wait for runs of each language, with its interpreter started, where the default image has it: `python=4,javascript=2`; 0, or an empty one, keeps none",
			at:   func(c *Config) value { return countsValue{&c.Pool, 64} },
		},
		{
			key: "pool_max", env: "AUREA_POOL_MAX", flag: "pool-max", roles: own, init: "8",
			help: "how many sandboxes of one language may wait when they are used up faster than they are made",
			at:   func(c *Config) value { return intValue{&c.PoolMax, 0, 64} },
		},
		{
			key: "memory", env: "AUREA_MEMORY", flag: "memory", roles: own, init: "0",
			help: "how much memory the limits of all sandboxes may come to together; the worker takes no job beyond it; 0 is four fifths of the machine's",
			at:   func(c *Config) value { return &c.Memory },
		},
		{
			key: "min_disk", env: "AUREA_MIN_DISK", flag: "min-disk", roles: []Role{Up, Manager, Worker}, init: "0",
			help: "how much disk must be free at SANDBOX_BASE for the worker to take jobs, and in the data folder for the manager to take plans and runs; 0 is a twentieth of the disk, but at most 1GiB",
			at:   func(c *Config) value { return &c.MinDisk },
		},
		{
			key: "drain_timeout", env: "AUREA_DRAIN_TIMEOUT", flag: "drain-timeout", roles: own, init: "30s",
			help: "how long running jobs may go on after a stop was asked for, before they are given back to the queue",
			at: func(c *Config) value {
				return durationValue{&c.DrainTimeout, 0, time.Hour}
			},
		},
		{
			key: "partition_limit", env: "AUREA_PARTITION_LIMIT", flag: "partition-limit", roles: own, init: "5m",
			help: "how long sandboxes go on while the worker can reach no manager; then it kills all of them; never shorter than the lease term; 0 is for good",
			at: func(c *Config) value {
				return durationValue{&c.PartitionLimit, 0, 365 * 24 * time.Hour}
			},
		},
		{
			key: "on_stop", env: "AUREA_ON_STOP", roles: own, init: EndSandboxes,
			help: "whether a stop ends live sandboxes after the drain (`end`), or leaves them at work at once for the next start (`keep`), which goes on with them if it comes before their time is over; `up --end` and `up --keep` say the same",
			at: func(c *Config) value {
				return textValue{to: &c.OnStop, some: true, of: []string{EndSandboxes, KeepSandboxes}}
			},
		},
		{
			key: "snapshots", env: "AUREA_SNAPSHOTS", flag: "snapshots", roles: own, init: "on",
			help: "whether a snapshot of each workspace is kept as evidence: `on`, or `off` for measurements",
			at: func(c *Config) value {
				return textValue{to: &c.Snapshots, some: true, of: []string{"on", "off"}}
			},
		},
		{
			key: "output_limit", env: "AUREA_OUTPUT_LIMIT", flag: "output-limit", roles: own, init: "64MiB",
			help: "how much of stdout, and of stderr, is kept of one try",
			at:   func(c *Config) value { return &c.OutputLimit },
		},
	}
}

func queueSettings() []setting {
	own := []Role{Up, Manager}
	return []setting{
		{
			key: "roles", env: "AUREA_ROLES", flag: "roles", roles: own,
			help: "binding map from role to worker or model, as `Employee=worker_a,Reviewer=model_b`; in the file, a map",
			at:   func(c *Config) value { return mapValue{&c.Roles} },
		},
		{
			key: "role_fallback", env: "AUREA_ROLE_FALLBACK", flag: "role-fallback", roles: own,
			help: "worker or model for roles that the map does not name; empty lets any worker take them",
			at:   text(func(c *Config) *string { return &c.RoleFallback }),
		},
		{
			key: "project_cap", env: "AUREA_PROJECT_CAP", flag: "project-cap", roles: own, init: "0",
			help: "how many jobs of one project may run at once; 0 is no cap",
			at:   func(c *Config) value { return intValue{&c.ProjectCap, 0, 1 << 20} },
		},
		{
			key: "lease_term", env: "AUREA_LEASE_TERM", flag: "lease-term", roles: own, init: "30s",
			help: "how long a worker holds a job without a sign of life; it renews every third of it",
			at: func(c *Config) value {
				return durationValue{&c.LeaseTerm, 3 * time.Second, time.Hour}
			},
		},
	}
}

func sharedSettings() []setting {
	servers := []Role{Up, Manager, Worker, Bridge}
	return []setting{
		{
			key: "server", env: "AUREA_SERVER", flag: "server", roles: []Role{Client}, init: "http://127.0.0.1:8000",
			help: "where commands such as `aurea jobs ls` find the manager",
			at:   some(func(c *Config) *string { return &c.Server }),
		},
		{
			key: "key", env: "AUREA_KEY", roles: []Role{Worker, Bridge, Client},
			help: "key to show to the manager; has no flag, because flags are visible to every user of the machine",
			at:   func(c *Config) value { return &c.Key },
		},
		{
			key: "key_file", env: "AUREA_KEY_FILE", flag: "key-file", roles: []Role{Worker, Bridge, Client},
			help: "file that holds the key",
			at:   text(func(c *Config) *string { return &c.KeyFile }),
		},
		{
			key: "worker_key_file", env: "AUREA_WORKER_KEY_FILE", roles: []Role{Manager},
			help: "where a manager writes the key for its workers at first start, such as a folder that it shares with them; without it, manager/keys/worker.key",
			at:   text(func(c *Config) *string { return &c.WorkerKeyFile }),
		},
		{
			key: "trace_endpoint", env: "OTEL_EXPORTER_OTLP_ENDPOINT", flag: "trace-endpoint", roles: []Role{Up, Manager, Worker},
			help: "base URL of a collector that takes traces over OTLP/HTTP, such as `http://127.0.0.1:4318`; empty is none",
			at:   text(func(c *Config) *string { return &c.TraceEndpoint }),
		},
		{
			key: "log_level", env: "LOG_LEVEL", flag: "log-level", roles: servers, init: "info",
			help: "least level that is logged: `debug`, `info`, `warn`, `error`",
			at:   func(c *Config) value { return levelValue{&c.LogLevel} },
		},
		{
			key: "log_format", env: "LOG_FORMAT", flag: "log-format", roles: servers, init: TextLog,
			help: "how logs are written: `text` or `json`",
			at: func(c *Config) value {
				return textValue{to: &c.LogFormat, some: true, of: []string{TextLog, JSONLog}}
			},
		},
	}
}

func settingByKey(key string) (setting, bool) {
	for _, s := range settings() {
		if s.key == key {
			return s, true
		}
	}
	return setting{}, false
}
