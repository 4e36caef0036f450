package manifest

import (
	"slices"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Contract is what the workers of a project keep to together.
type Contract struct {
	Name      string
	ProjectID int64  // that it is for; 0 is none in particular
	Template  string // that it was made from, or ""

	MaxDepth    int // of a worker; a root has depth 0
	MaxReplicas int // workers that are there at the same time
	// Cooldown is how long a worker waits between two children.
	Cooldown time.Duration
	// Expiration is how long a worker lives; 0 is for ever.
	Expiration time.Duration
	Stop       []StopCondition
	// Resources are those of a worker that asks for none.
	Resources Resources

	Version   int64 // grows with each change
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Bounds of contracts.
const (
	MaxReplicas   = 100_000
	MaxConditions = 16

	maxCooldown   = 30 * 24 * time.Hour
	maxExpiration = 365 * 24 * time.Hour
	maxName       = 64
)

// DefaultContract is the name of the contract of those who name none.
const DefaultContract = "default"

// Default is that contract as long as nobody has changed it.
func Default() Contract {
	return Contract{
		Name: DefaultContract, MaxDepth: 3, MaxReplicas: 10, Cooldown: time.Second, Expiration: time.Hour,
		Resources: Resources{CPULimit: 0.5, MemoryLimitMB: 256, Network: DefaultNetwork()},
	}
}

// Check refuses a contract that makes no sense.
func (c *Contract) Check() error {
	if !validName(c.Name) {
		return fault.Field("name", "must have from 1 to %d lower-case letters, digits, - and _", maxName)
	}
	switch {
	case c.ProjectID < 0:
		return fault.Field("project_id", "must not be negative")
	case c.MaxDepth < 0 || c.MaxDepth > MaxDepth:
		return fault.Field("max_depth", "must be from 0 to %d", MaxDepth)
	case c.MaxReplicas < 1 || c.MaxReplicas > MaxReplicas:
		return fault.Field("max_replicas", "must be from 1 to %d", MaxReplicas)
	case c.Cooldown < 0 || c.Cooldown > maxCooldown:
		return fault.Field("cooldown_seconds", "must be from 0 to %d", int64(maxCooldown/time.Second))
	case c.Expiration < 0 || c.Expiration > maxExpiration:
		return fault.Field("expiration_seconds", "must be more than 0 and at most %d, or null", int64(maxExpiration/time.Second))
	case len(c.Stop) > MaxConditions:
		return fault.Field("stop_conditions", "has more than %d", MaxConditions)
	}
	for i := range c.Stop {
		if err := c.Stop[i].Check(); err != nil {
			return err
		}
	}
	return c.Resources.Check()
}

func validName(name string) bool {
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

// ValidContract reports whether text can be the name of a contract.
func ValidContract(text string) bool { return validName(text) }

// StopCondition refuses registrations when something is reached. What is looked
// at is one of a closed list: a contract holds no code.
type StopCondition struct {
	Name      string  `json:"name"`
	Threshold float64 `json:"threshold"`
}

// The stop conditions.
const (
	DepthUtilization = "depth_utilization_limit" // depth as a share of max_depth
	QuotaPressure    = "quota_pressure_limit"    // workers as a share of max_replicas
	HighMemory       = "high_memory_guard"       // megabytes that are asked for
)

// Conditions lists what can be asked for, with the usual thresholds.
func Conditions() []StopCondition {
	return []StopCondition{{DepthUtilization, 0.8}, {QuotaPressure, 0.9}, {HighMemory, 512}}
}

// Describe says what a condition is for.
func (s StopCondition) Describe() string {
	switch s.Name {
	case DepthUtilization:
		return "no worker whose depth has come to this share of max_depth"
	case QuotaPressure:
		return "no worker when those that are there have come to this share of max_replicas"
	case HighMemory:
		return "no worker that asks for more megabytes than this"
	}
	return ""
}

// Check refuses a condition that does not exist, and fills in the usual
// threshold where none is given.
func (s *StopCondition) Check() error {
	i := slices.IndexFunc(Conditions(), func(x StopCondition) bool { return x.Name == s.Name })
	if i < 0 {
		return fault.Field("stop_conditions", "%.60q is not one of %s, %s, %s", s.Name, DepthUtilization, QuotaPressure, HighMemory)
	}
	if s.Threshold == 0 {
		s.Threshold = Conditions()[i].Threshold
	}
	if !(s.Threshold > 0 && s.Threshold <= maxMemoryMB) {
		return fault.Field("stop_conditions", "the threshold of %s must be more than 0", s.Name)
	}
	return nil
}

// triggered reports whether the condition holds for a manifest.
func (s StopCondition) triggered(m *Manifest, active int, c *Contract) bool {
	switch s.Name {
	case DepthUtilization:
		return c.MaxDepth > 0 && float64(m.Depth)/float64(c.MaxDepth) >= s.Threshold
	case QuotaPressure:
		return float64(active)/float64(c.MaxReplicas) >= s.Threshold
	case HighMemory:
		return float64(m.Resources.MemoryLimitMB) > s.Threshold
	}
	return true // one that is not known stops all
}

// Evaluate returns the name of the first stop condition that holds, or "".
func (c *Contract) Evaluate(m *Manifest, active int) string {
	for _, s := range c.Stop {
		if s.triggered(m, active, c) {
			return s.Name
		}
	}
	return ""
}

// Templates are contracts to begin with, by name.
func Templates() []Contract {
	template := func(name string, depth, replicas, cooldown, expiry int, cpu float64, memory int64) Contract {
		return Contract{
			Name: name, Template: name, MaxDepth: depth, MaxReplicas: replicas, Cooldown: time.Duration(cooldown) * time.Second,
			Expiration: time.Duration(expiry) * time.Second, Resources: Resources{CPULimit: cpu, MemoryLimitMB: memory, Network: DefaultNetwork()},
		}
	}
	return []Contract{
		template("web_crawler", 2, 15, 5, 300, 0.25, 128),
		template("data_pipeline", 1, 25, 0, 600, 1.0, 512),
		template("ml_training", 3, 10, 10, 1800, 2.0, 2048),
		template("code_analysis", 3, 20, 2, 300, 0.5, 256),
		template("security_scanner", 1, 5, 30, 120, 0.25, 128),
		template("research_experiment", 4, 30, 0, 3600, 0.5, 512),
		template("autonomous_agent", 2, 3, 60, 300, 0.25, 128),
		template("ci_cd_pipeline", 2, 15, 0, 900, 1.0, 512),
	}
}

// FromTemplate returns a template by name.
func FromTemplate(name string) (Contract, bool) {
	for _, t := range Templates() {
		if t.Name == name {
			return t, true
		}
	}
	return Contract{}, false
}
