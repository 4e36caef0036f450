package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Print writes the result as a person reads it.
func (q Queue) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "store\tstored events\tsnapshots\tclients\tjobs\tjobs/s\tmanager CPU/job\tworker CPU/job\t")
	for _, r := range q.Rows {
		snap := "no"
		if r.Snapshots {
			snap = "yes"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%d\t%.0f\t%s\t%s\t\n", r.Store, r.Events, snap, r.Clients, r.Jobs, r.PerSecond, round(r.ManagerCPU), round(r.WorkerCPU))
	}
	fmt.Fprintln(t, "\t\t\t\t\t")
	fmt.Fprintln(t, "store\tstored events\tsubmit → start p50\tp99\t")
	for _, s := range q.Start {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t\n", s.Store, s.Events, round(s.P50), round(s.P99))
	}
	fmt.Fprintln(t, "\t\t\t\t\t")
	fmt.Fprintln(t, "store\tcall, p50\tlittle history\tmuch history\tratio\t")
	for _, c := range q.Calls {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.2f\t\n", c.Store, c.Name, round(c.Few), round(c.Many), c.Ratio)
	}
	return t.Flush()
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// Print writes the result as a person reads it.
func (s Sandboxes) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\tstage\tp50\tp95\tCPU\t× %s\tCPU ×\t\n", s.Against)
	for _, r := range s.Rows {
		name := r.Name
		for _, at := range r.Stages {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%.3f\t%.3f\t\n", name, at.Name, round(at.P50), round(at.P95), round(at.CPU), at.Ratio, at.CPURatio)
			name = ""
		}
	}
	fmt.Fprintln(t, "\t\t\t\t\t\t\t")
	fmt.Fprintf(t, "\tidle\tlives/s on %d cores\t\n", s.Cores)
	for _, r := range s.Rows {
		if r.Missing != "" {
			continue
		}
		idle := "-"
		if r.Idle > 0 {
			idle = fmt.Sprintf("%.1f MiB", float64(r.Idle)/(1<<20))
		}
		fmt.Fprintf(t, "%s\t%s\t%.1f\t\n", r.Name, idle, r.PerSecond)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range s.Rows {
		if r.Missing != "" {
			fmt.Fprintf(w, "left out: %s: %s\n", r.Name, r.Missing)
		}
	}
	return nil
}

// Print writes the result as a person reads it.
func (s Runs) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "language\tclients\t\tp50\tp95\tp99\tCPU\twarm\t× bare\t")
	for _, r := range s.Rows {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t\n", r.Language, r.Clients, r.Name, round(r.P50), round(r.P95), round(r.P99), round(r.CPU), share(r.Warm), r.Ratio)
	}
	if len(s.Rates) > 0 {
		fmt.Fprintln(t, "\t\t\t\t\t\t\t\t\t")
		fmt.Fprintf(t, "sustained, %d cores\tclients\t\truns/s\truns\twarm\tCPU per run\tmanager, worker\t× %s\t\n", s.Cores, runscName)
	}
	for _, r := range s.Rates {
		parts := "-"
		if len(r.Parts) > 0 {
			parts = fmt.Sprintf("%s, %s", round(r.Parts["manager"]), round(r.Parts["worker"]))
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%.1f\t%d\t%s\t%s\t%s\t%.2f\t\n", r.Language, r.Clients, r.Name, r.PerSecond, r.Runs, share(r.Warm), round(r.CPU), parts, r.Ratio)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	s.printStages(w)
	for _, l := range s.Left {
		fmt.Fprintf(w, "left out: %s %s: %s\n", l.Name, l.Language, l.Why)
	}
	return nil
}

// printStages writes a line for each runner and language.
func (s Runs) printStages(w io.Writer) {
	if len(s.Stages) > 0 {
		fmt.Fprintln(w, "\nwhere the time goes, 1 client, p50:")
	}
	last := ""
	for _, r := range s.Stages {
		if of := r.Language + ", " + r.Name; of != last {
			if last != "" {
				fmt.Fprintln(w)
			}
			fmt.Fprintf(w, "  %s:", of)
			last = of
		}
		fmt.Fprintf(w, " %s %s", r.Stage, round(r.P50))
	}
	if last != "" {
		fmt.Fprintln(w)
	}
}

// share writes a part of all; what has no pool has none.
func share(part float64) string {
	if part == 0 {
		return "-"
	}
	const all = 100
	return fmt.Sprintf("%.0f %%", all*part)
}
