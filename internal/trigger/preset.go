package trigger

import (
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/manifest"
)

// Preset is a set of triggers to start from.
type Preset struct {
	Name     string
	Triggers []Trigger
}

// Presets lists them. Some name what cannot be watched yet: who applies one is
// told what was left out.
func Presets() []Preset {
	set := func(name string, p Plan, list ...Trigger) Preset {
		for i := range list {
			t := &list[i]
			t.Plan, t.Preset, t.Enabled, t.Label = p, name, true, name+" "+string(t.Kind)
			if t.Severity == "" {
				t.Severity = manifest.High
			}
		}
		return Preset{Name: name, Triggers: list}
	}
	plan := func(s Strategy, cooldown time.Duration) Plan {
		p := DefaultPlan()
		p.Strategy, p.Cooldown = s, cooldown
		return p
	}
	return []Preset{
		set("conservative", plan(Graceful, 120*time.Second),
			Trigger{Kind: CPU, Threshold: 80, Sustained: 10 * time.Second},
			Trigger{Kind: Memory, Threshold: 1024},
			Trigger{Kind: Anomaly, Threshold: 0.7, Severity: manifest.Critical},
			Trigger{Kind: TimeLimit, Threshold: 7200, Severity: manifest.Medium},
			Trigger{Kind: Errors, Threshold: 0.15},
		),
		set("aggressive", plan(Forceful, 30*time.Second),
			Trigger{Kind: CPU, Threshold: 60, Sustained: 5 * time.Second},
			Trigger{Kind: Memory, Threshold: 512},
			Trigger{Kind: Anomaly, Threshold: 0.5, Severity: manifest.Critical},
			Trigger{Kind: TimeLimit, Threshold: 1800, Severity: manifest.Medium},
			Trigger{Kind: Requests, Threshold: 100},
		),
		set("quarantine", plan(Quarantine, 300*time.Second),
			Trigger{Kind: Anomaly, Threshold: 0.6, Severity: manifest.Critical},
			Trigger{Kind: CPU, Threshold: 95, Sustained: 60 * time.Second},
		),
	}
}

// FindPreset returns a preset by name.
func FindPreset(name string) (Preset, error) {
	for _, p := range Presets() {
		if p.Name == name {
			return p, nil
		}
	}
	return Preset{}, fault.New(fault.NotFound, "There is no preset %.40q.", name)
}
