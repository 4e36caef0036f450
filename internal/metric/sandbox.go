package metric

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/aurea-dev/aurea/internal/job"
)

// SandboxSource is asked for what open sandboxes use whenever somebody reads it:
// for all together, and for so many one by one.
type SandboxSource interface {
	SandboxFigures(most int) job.SandboxFigures
}

// MaxSandboxes is how many sandboxes may have figures of their own.
const MaxSandboxes = 100

// AskSandboxes adds the figures of a source. Ids of sandboxes are new labels all
// the time, so there are none unless most is above 0.
func (m *Metrics) AskSandboxes(s SandboxSource, most int) {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m.registry.MustRegister(&askedSandboxes{
		source: s, most: min(most, MaxSandboxes),
		open:      d("aurea_kept_sandboxes", "Sandboxes that are kept at workers of this manager, as last measured."),
		execs:     d("aurea_kept_execs", "Commands that run in them."),
		cpu:       d("aurea_kept_cpu_seconds_total", "Processor time that they have used, since this manager started."),
		memory:    d("aurea_kept_memory_bytes", "Memory that they use together."),
		processes: d("aurea_kept_processes", "Processes of the host that they have together."),
		oneCPU:    d("aurea_kept_sandbox_cpu_seconds_total", "Processor time that a sandbox has used.", "sandbox"),
		oneMemory: d("aurea_kept_sandbox_memory_bytes", "Memory that a sandbox uses.", "sandbox"),
		disk:      d("aurea_kept_disk_bytes", "Bytes of files that were written in them together."),
		oneDisk:   d("aurea_kept_sandbox_disk_bytes", "Bytes of files that were written in a sandbox.", "sandbox"),
		oneNumber: d("aurea_kept_sandbox_processes", "Processes of the host that a sandbox has.", "sandbox"),
	})
}

type askedSandboxes struct {
	source                                    SandboxSource
	most                                      int
	open, execs, cpu, memory, disk, processes *prometheus.Desc
	oneCPU, oneMemory, oneDisk, oneNumber     *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (a *askedSandboxes) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{a.open, a.execs, a.cpu, a.memory, a.disk, a.processes, a.oneCPU, a.oneMemory, a.oneDisk, a.oneNumber} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (a *askedSandboxes) Collect(ch chan<- prometheus.Metric) {
	f := a.source.SandboxFigures(a.most)
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	send(a.open, prometheus.GaugeValue, float64(f.Open))
	send(a.execs, prometheus.GaugeValue, float64(f.Execs))
	send(a.cpu, prometheus.CounterValue, f.Spent.Seconds())
	send(a.memory, prometheus.GaugeValue, float64(f.Memory))
	send(a.disk, prometheus.GaugeValue, float64(f.Disk))
	send(a.processes, prometheus.GaugeValue, float64(f.Processes))
	for _, x := range f.Busiest {
		send(a.oneCPU, prometheus.CounterValue, x.CPU.Seconds(), x.ID)
		send(a.oneMemory, prometheus.GaugeValue, float64(x.Memory), x.ID)
		send(a.oneDisk, prometheus.GaugeValue, float64(x.Disk), x.ID)
		send(a.oneNumber, prometheus.GaugeValue, float64(x.Processes), x.ID)
	}
}
