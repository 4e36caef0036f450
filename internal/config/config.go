// Package config is the one place where settings come from: flags, then the
// environment, then a file, then defaults. It reads, checks and explains them;
// it starts nothing. No other package reads the environment.
//
// Two tables hold everything: settings (what can be set, by which flag,
// variable and key) and variables (every variable that an earlier system knew,
// as used, aliased or refused with a reason). The documentation is generated
// from them.
package config

import (
	"errors"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Config is every setting, typed. Load is the only way to get one that is
// complete and checked.
type Config struct {
	Host        string
	Port        int
	BridgePort  int
	HostNames   []string // further names under which callers may address us
	Origins     []string // sites whose pages may change things
	Data        string
	SandboxBase string
	DatabaseURL Secret // it may hold a password
	Blobs       string // LocalBlobs, DatabaseBlobs, an address s3://…, or "" for what fits the database
	S3          S3

	ManagerURLs  []string // of managers that share a database
	WorkerID     string
	WorkerRole   string
	WorkerModels []string
	Driver       string
	Image        string // of sandboxes that name none; "" is the driver's own
	// ImageAliases say what stands in for images that are not there.
	ImageAliases map[string]string
	Images       string // folder; "" is in SandboxBase
	Languages    string // file, laid over what we ship; "" is none
	HostLimit    Bytes  // of the image that is taken of the host
	// InsecureRegistries may be spoken to without TLS.
	InsecureRegistries []string
	Concurrency        int
	Pool               map[string]int // by language
	PoolMax            int
	Memory             Bytes // of all sandboxes together; 0 is most of the machine's
	MinDisk            Bytes // free, for more jobs; 0 is a share of the disk
	DrainTimeout       time.Duration
	PartitionLimit     time.Duration // 0 is never
	OnStop             string        // KeepSandboxes or EndSandboxes
	Snapshots          string        // "on" or "off"

	Dockerfiles   string // folder; "" is none besides those that come along
	DockerHost    string // address of the Docker Engine
	DockerRuntime string // "" is the engine's default

	Roles        map[string]string // role → worker or model, binding
	RoleFallback string
	ProjectCap   int
	LeaseTerm    time.Duration

	// Access is who is let in.
	Access Access
	// Runs is how runs of code are taken.
	Runs Runs
	// Sandboxes is how sandboxes are kept.
	Sandboxes Sandboxes
	// Fleet is how the fleet is governed.
	Fleet Fleet

	// Keep is how long what is over is kept.
	Keep Keep

	// Limits bound each sandbox.
	Limits Limits
	// OutputLimit bounds the output that is kept of one stream of one try.
	OutputLimit Bytes

	Server  string // where the commands that ask find the manager
	Key     Secret
	KeyFile string
	// WorkerKeyFile is where a manager writes the key for its workers.
	WorkerKeyFile string

	TraceEndpoint string // of a collector; "" is none

	LogLevel  slog.Level
	LogFormat string // TextLog or JSONLog

	// ListenFD is the inherited socket on which a supervised role serves; 0
	// when it binds its own.
	ListenFD int

	origins map[string]Origin
	notes   []string
}

// Values of Blobs.
const (
	LocalBlobs    = "local"
	DatabaseBlobs = "database"
)

// Values of OnStop.
const (
	EndSandboxes  = "end"
	KeepSandboxes = "keep"
)

// Values of LogFormat.
const (
	TextLog = "text"
	JSONLog = "json"
)

// Origin says where a value came from: "default", "file", "flag --port",
// "environment PORT".
type Origin string

// The origins without a name of their own.
const (
	FromDefault Origin = "default"
	FromFile    Origin = "file"
)

// Notes are lines about variables that are set and have no effect; a start
// logs them once.
func (c *Config) Notes() []string { return c.notes }

// Given reports whether somebody set a setting, named by its key, rather than
// left it at its default.
func (c *Config) Given(key string) bool { return c.origins[key] != FromDefault }

// Loopback reports whether only this machine can reach the server, in which
// case no key is asked for.
func (c *Config) Loopback() bool { return isLoopback(c.Host) }

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Address is where the manager listens.
func (c *Config) Address() string { return net.JoinHostPort(c.Host, strconv.Itoa(c.Port)) }

// BridgeAddress is where the bridge listens.
func (c *Config) BridgeAddress() string { return net.JoinHostPort(c.Host, strconv.Itoa(c.BridgePort)) }

// LocalURL is how a process on this machine reaches a port that is bound to
// Host: through loopback when Host stands for every address.
func (c *Config) LocalURL(port int) string {
	host := c.Host
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(port))
}

// The layout of the data folder.

// ManagerDir holds what only the manager reads and writes.
func (c *Config) ManagerDir() string { return filepath.Join(c.Data, "manager") }

// BlobDir holds blobs by digest.
func (c *Config) BlobDir() string { return filepath.Join(c.ManagerDir(), "blobs") }

// OutputDir holds the output of running jobs.
func (c *Config) OutputDir() string { return filepath.Join(c.ManagerDir(), "output") }

// KeyDir holds the keys that were made at first start.
func (c *Config) KeyDir() string { return filepath.Join(c.ManagerDir(), "keys") }

// RunDir holds locks and sockets, which mean nothing after a reboot.
func (c *Config) RunDir() string { return filepath.Join(c.Data, "run") }

// ImageDir holds the images of sandboxes.
func (c *Config) ImageDir() string {
	if c.Images != "" {
		return c.Images
	}
	return filepath.Join(c.SandboxBase, "images")
}

// DatabasePath is the SQLite file.
func (c *Config) DatabasePath() string {
	if path, ok := strings.CutPrefix(string(c.DatabaseURL), "sqlite:"); ok {
		return strings.TrimPrefix(path, "//")
	}
	return filepath.Join(c.ManagerDir(), "aurea.db")
}

// Shared reports whether the database is one that several managers may share.
func (c *Config) Shared() bool {
	return strings.HasPrefix(string(c.DatabaseURL), "postgres://") || strings.HasPrefix(string(c.DatabaseURL), "postgresql://")
}

// Validate checks what no single value can tell, for the role that reads the
// settings. Its fault is one line that names the setting.
func (c *Config) Validate(role Role) error {
	reads := func(key string) bool { s, _ := settingByKey(key); return s.forRole(role) }
	switch {
	case role == Client:
		if err := checkURL("server", c.Server); err != nil {
			return err
		}
		return c.checkKey()
	case c.Port == c.BridgePort && c.Port != 0:
		return bad("bridge_port", "the manager and the bridge cannot both use %d", c.Port)
	case reads("data") && !filepath.IsAbs(c.Data):
		return bad("data", "%q must be an absolute path", c.Data)
	case reads("sandbox_base") && !filepath.IsAbs(c.SandboxBase):
		return bad("sandbox_base", "%q must be an absolute path", c.SandboxBase)
	case reads("images") && c.Images != "" && !filepath.IsAbs(c.Images):
		return bad("images", "%q must be an absolute path", c.Images)
	case reads("dockerfiles") && c.Dockerfiles != "" && !filepath.IsAbs(c.Dockerfiles):
		return bad("dockerfiles", "%q must be an absolute path", c.Dockerfiles)
	case c.DatabaseURL != "" && !c.Shared() && !strings.HasPrefix(string(c.DatabaseURL), "sqlite:"):
		return bad("database_url", "must be sqlite:PATH or postgres://USER@HOST/DATABASE; unset it to use the database in the data folder")
	case c.DatabaseURL != "" && !c.Shared() && !filepath.IsAbs(c.DatabasePath()):
		return bad("database_url", "the path after sqlite: must be absolute")
	case c.Blobs == DatabaseBlobs && !c.Shared():
		return bad("blobs", "SQLite keeps its blobs in the data folder; leave it out")
	}
	if err := errors.Join(c.checkS3(), c.checkAccess()); err != nil {
		return err
	}
	if c.TraceEndpoint != "" {
		if err := checkURL("trace_endpoint", c.TraceEndpoint); err != nil {
			return err
		}
	}
	if len(c.ManagerURLs) == 0 {
		return bad("manager_url", "must not be empty")
	}
	for _, u := range c.ManagerURLs {
		if err := checkURL("manager_url", u); err != nil {
			return err
		}
	}
	if err := checkURL("server", c.Server); err != nil {
		return err
	}
	return c.checkKey()
}

func (c *Config) checkKey() error {
	if c.Key != "" && c.KeyFile != "" {
		return bad("key", "it is set, and key_file too; set only one of them")
	}
	return nil
}

func checkURL(key, value string) error {
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return bad(key, "%q is not a URL such as http://127.0.0.1:8000", value)
	}
	if u.User != nil {
		return bad(key, "a URL must not carry a password; use AUREA_KEY or AUREA_KEY_FILE")
	}
	return nil
}

// bad is a fault about one setting, named as people set it.
func bad(key, format string, args ...any) error {
	f := fault.Field(key, format, args...)
	if s, ok := settingByKey(key); ok {
		f.Field = s.names()
	}
	return f.WithCode("bad_setting")
}
