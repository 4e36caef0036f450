// Package doctor looks at this machine and says, for each driver, whether it
// can work here: what is missing, what that costs, and what to do about it. It
// also packs what support needs to know into one file, without secrets.
//
// It changes nothing, and makes no sandbox: that a driver's wall stands is
// proved by package probe. The commands doctor and diagnose are its callers.
package doctor

import (
	"context"
	"slices"
	"time"

	"github.com/aurea-dev/aurea/internal/cgroup"
)

// Level says how much a finding matters.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Weak Level = "weak" // the driver works, with less
	Lack Level = "lack" // the driver does not work
)

// Finding is one thing that was looked at.
type Finding struct {
	Name  string `json:"name"`
	Level Level  `json:"level"`
	// Found is what is there.
	Found string `json:"found"`
	// Cost is what is missing because of it, Remedy what to do.
	Cost   string `json:"cost,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// Driver is what was found for one driver.
type Driver struct {
	Name     string    `json:"name"`
	Works    bool      `json:"works"`
	Chosen   bool      `json:"chosen"`
	Findings []Finding `json:"findings"`
}

// Report is what was found.
type Report struct {
	Version string    `json:"version"`
	At      time.Time `json:"at"`
	Kernel  string    `json:"kernel"`
	Drivers []Driver  `json:"drivers"`
	// Blobs says whether the bucket of the blobs can be reached, when they lie
	// in one.
	Blobs *Finding `json:"blobs,omitempty"`
}

// Healthy reports whether the driver that is set can work, and the bucket that
// is set, if one is, can be reached.
func (r Report) Healthy() bool {
	if r.Blobs != nil && r.Blobs.Level == Lack {
		return false
	}
	return slices.ContainsFunc(r.Drivers, func(d Driver) bool { return d.Chosen && d.Works })
}

// Options says what to look at.
type Options struct {
	Version string
	// Chosen is the driver that is set.
	Chosen string
	// Sentry and Guest are the binaries of the gvisor driver; BinariesErr is
	// why they were not found.
	Sentry, Guest string
	BinariesErr   error
	// Data is the folder that sandboxes and data go to.
	Data string
	// DockerHost is the address of the Docker Engine.
	DockerHost string
	// Root is where the machine's own files are; "/" but in tests.
	Root string
	// Root user, as far as the drivers are concerned.
	Superuser bool
	// Limited is what the worker limits for every sandbox by its settings.
	Limited map[cgroup.Controller]bool
	// Rootless is why a user who is not root can make no sandbox here, if so.
	Rootless error
	// Bucket names that of the blobs; "" is none. Reach tries to reach it.
	Bucket string
	Reach  func(context.Context) error
}

// Examine looks at the machine.
func Examine(ctx context.Context, o Options) Report {
	m := machine{root: o.Root, superuser: o.Superuser, rootless: o.Rootless, limited: o.Limited}
	common := []Finding{m.disk(o.Data), m.memory()}
	r := Report{Version: o.Version, At: time.Now().UTC(), Kernel: m.kernel()}
	gvisor := []Finding{m.user()}
	gvisor = append(gvisor, binaries(o)...)
	gvisor = append(gvisor, m.pidfd(), m.seccomp(), m.trace(), m.namespaces())
	gvisor = append(gvisor, m.groups()...)
	gvisor = append(gvisor, m.kvm())
	docker := append(engine(ctx, o.DockerHost), guest(o), m.overlay())
	for _, d := range []Driver{
		{Name: "gvisor", Findings: append(gvisor, common...)},
		{Name: "docker", Findings: append(docker, common...)},
		{Name: "fake", Findings: []Finding{{Name: "isolation", Level: OK, Found: "nothing is executed", Cost: "no code runs: for tests and dry runs"}}},
	} {
		d.Chosen = d.Name == o.Chosen
		d.Works = !slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Level == Lack })
		r.Drivers = append(r.Drivers, d)
	}
	if o.Bucket != "" {
		r.Blobs = bucket(ctx, o)
	}
	return r
}
