package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
)

func (inv *invocation) jobsCommand() *cobra.Command {
	return group("jobs", "Look at jobs and steer them",
		inv.listCommand(), inv.showCommand(), inv.cancelCommand(), inv.retryCommand(), inv.logsCommand())
}

func (inv *invocation) listCommand() *cobra.Command {
	var status, role, root, project string
	var limit int
	cmd := inv.asking(&cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List jobs, newest first", Args: noArgs},
		func(ctx context.Context, c *client.Client, _ []string) error {
			f := client.JobFilter{Status: client.Status(strings.ToUpper(status)), Role: role, RootJobID: root, PageSize: min(max(limit, 0), 1000)}
			if project != "" {
				n, err := strconv.ParseInt(project, 10, 64)
				if err != nil {
					return &usageError{fmt.Sprintf("--project %q is not a number", project), ""}
				}
				f.ProjectID = &n
			}
			jobs := []client.Job{}
			for j, err := range c.Jobs(ctx, f) {
				if err != nil {
					return err
				}
				if jobs = append(jobs, j); limit > 0 && len(jobs) >= limit {
					break
				}
			}
			if inv.json {
				return inv.printJSON(jobs)
			}
			return inv.printJobs(jobs)
		})
	cmd.Flags().StringVar(&status, "status", "", "only jobs in this state")
	cmd.Flags().StringVar(&role, "role", "", "only jobs for this role")
	cmd.Flags().StringVar(&root, "plan", "", "only jobs of the plan with this id")
	cmd.Flags().StringVar(&project, "project", "", "only jobs of this project")
	cmd.Flags().IntVar(&limit, "limit", 50, "at most so many; 0 is all")
	return cmd
}

func (inv *invocation) printJobs(jobs []client.Job) error {
	now := time.Now()
	rows := [][]string{{"ID", "STATUS", "OUTCOME", "ROLE", "WORKER", "CREATED", "TITLE"}}
	for _, j := range jobs {
		rows = append(rows, []string{
			j.ID, string(j.Status), or(j.Outcome, "-"), j.Role, or(j.WorkerID, or(j.AssignedModel, "-")), inv.moment(&j.CreatedAt, now), clip(j.Title, 60),
		})
	}
	return inv.printTable(rows)
}

func (inv *invocation) showCommand() *cobra.Command {
	return inv.asking(&cobra.Command{Use: "show ID", Short: "Show a job", Args: exactly("job")},
		func(ctx context.Context, c *client.Client, args []string) error {
			j, err := c.Job(ctx, args[0])
			if err != nil {
				return err
			}
			if inv.json {
				return inv.printJSON(j)
			}
			return inv.printJob(j)
		})
}

func (inv *invocation) printJob(j client.Job) error {
	now := time.Now()
	rows := [][]string{
		{"id", j.ID},
		{"plan", j.RootJobID},
		{"title", j.Title},
		{"status", string(j.Status)},
		{"outcome", or(j.Outcome, "-")},
		{"project", strconv.FormatInt(j.ProjectID, 10)},
		{"role", j.Role},
		{"assigned to", or(j.AssignedModel, "-")},
		{"worker", or(j.WorkerID, "-")},
		{"attempt", strconv.Itoa(j.Attempt)},
		{"retries", fmt.Sprintf("%d of %d", j.RetryCount, j.MaxRetries)},
		{"created", inv.moment(&j.CreatedAt, now)},
		{"started", inv.moment(j.StartedAt, now)},
		{"ended", inv.moment(j.CompletedAt, now)},
	}
	if len(j.DependsOn) > 0 {
		rows = append(rows, []string{"depends on", strings.Join(j.DependsOn, " ")})
	}
	if err := inv.printTable(rows); err != nil {
		return err
	}
	for _, doc := range []struct {
		name string
		raw  json.RawMessage
	}{{"payload", j.Payload}, {"details", j.Details}} {
		if len(doc.raw) == 0 || string(doc.raw) == "null" {
			continue
		}
		var b bytes.Buffer
		if json.Indent(&b, doc.raw, "  ", "  ") != nil {
			continue
		}
		if _, err := fmt.Fprintf(inv.Out, "%s\n  %s\n", doc.name, harmlessText(b.String())); err != nil {
			return err
		}
	}
	return nil
}

func harmlessText(s string) string {
	var b strings.Builder
	_, _ = harmless{&b}.Write([]byte(s)) // a Builder takes everything
	return b.String()
}

func (inv *invocation) cancelCommand() *cobra.Command {
	var reason string
	cmd := inv.asking(&cobra.Command{Use: "cancel ID...", Short: "Cancel jobs, and stop them where they run; a plan is cancelled with all its jobs", Args: atLeastOne("job")},
		func(ctx context.Context, c *client.Client, args []string) error {
			return inv.each(args, func(id string) (client.Job, error) { return c.Cancel(ctx, id, reason) })
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

func (inv *invocation) retryCommand() *cobra.Command {
	return inv.asking(&cobra.Command{Use: "retry ID...", Short: "Give jobs that failed another life", Args: atLeastOne("job")},
		func(ctx context.Context, c *client.Client, args []string) error {
			return inv.each(args, func(id string) (client.Job, error) { return c.Retry(ctx, id) })
		})
}

// each does one thing to many jobs. One that fails does not keep the others
// from their turn; the exit code is that of the first that failed.
func (inv *invocation) each(ids []string, do func(id string) (client.Job, error)) error {
	var first error
	for _, id := range ids {
		j, err := do(id)
		if err != nil {
			if errors.Is(err, errInterrupted) {
				return err
			}
			inv.printError(err)
			if first == nil {
				first = quietError{err}
			}
			continue
		}
		if inv.json {
			err = inv.printJSON(j)
		} else {
			_, err = fmt.Fprintf(inv.Out, "%s %s\n", plain(j.ID), plain(string(j.Status)))
		}
		if err != nil {
			return err
		}
	}
	return first
}
