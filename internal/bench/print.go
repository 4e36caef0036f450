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
	fmt.Fprintln(t, "stored events\tsnapshots\tclients\tjobs\tjobs/s\t")
	for _, r := range q.Rows {
		snap := "no"
		if r.Snapshots {
			snap = "yes"
		}
		fmt.Fprintf(t, "%d\t%s\t%d\t%d\t%.0f\t\n", r.Events, snap, r.Clients, r.Jobs, r.PerSecond)
	}
	fmt.Fprintln(t, "\t\t\t\t\t")
	fmt.Fprintln(t, "stored events\tsubmit → start p50\tp99\t")
	for _, s := range q.Start {
		fmt.Fprintf(t, "%d\t%s\t%s\t\n", s.Events, round(s.P50), round(s.P99))
	}
	fmt.Fprintln(t, "\t\t\t\t\t")
	fmt.Fprintln(t, "call, p50\tlittle history\tmuch history\tratio\t")
	for _, c := range q.Calls {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.2f\t\n", c.Name, round(c.Few), round(c.Many), c.Ratio)
	}
	return t.Flush()
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
