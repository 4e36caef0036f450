package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"github.com/aurea-dev/aurea/client"
	"github.com/aurea-dev/aurea/internal/audit"
	"github.com/aurea-dev/aurea/internal/fault"
)

func (inv *invocation) auditCommand() *cobra.Command {
	return group("audit", "Read and verify what was decided and who acted",
		inv.auditListCommand(), inv.auditExportCommand(), inv.auditCheckpointCommand(), inv.auditKeyCommand(), inv.auditVerifyCommand())
}

// auditFilter offers the flags of a search.
func auditFilter(cmd *cobra.Command, f *client.AuditFilter) (finish func(now time.Time)) {
	var since time.Duration
	cmd.Flags().StringSliceVar(&f.Categories, "category", nil, "only these: policy, violation, killswitch, quarantine, escalation, access, config, alert")
	cmd.Flags().StringSliceVar(&f.Severities, "severity", nil, "only these: info, warning, critical")
	cmd.Flags().StringSliceVar(&f.Actions, "action", nil, "only these actions, such as job.cancel")
	cmd.Flags().StringVar(&f.Actor, "actor", "", "only of this caller")
	cmd.Flags().StringVar(&f.Target, "target", "", "only about this")
	cmd.Flags().StringVar(&f.Outcome, "outcome", "", "only with this outcome: done, denied, failed")
	cmd.Flags().StringVar(&f.RequestID, "request", "", "only of this request")
	cmd.Flags().DurationVar(&since, "since", 0, "only of so long ago, such as 24h")
	return func(now time.Time) {
		if since > 0 {
			f.From = now.Add(-since)
		}
	}
}

func (inv *invocation) auditListCommand() *cobra.Command {
	var f client.AuditFilter
	var limit int
	cmd := &cobra.Command{Use: "ls", Short: "List records, newest first", Args: noArgs}
	finish := auditFilter(cmd, &f)
	cmd.Flags().IntVar(&limit, "limit", 50, "at most so many; 0 is all")
	return inv.asking(cmd, func(ctx context.Context, c *client.Client, _ []string) error {
		now := time.Now()
		finish(now)
		rows, n := [][]string{{"SEQ", "WHEN", "SEVERITY", "ACTION", "OUTCOME", "ACTOR", "TARGET", "MESSAGE"}}, 0
		for r, err := range c.Audit(ctx, f) {
			if err != nil {
				return err
			}
			if inv.json {
				if err := inv.printJSON(r); err != nil {
					return err
				}
			}
			rows = append(rows, []string{fmt.Sprint(r.Seq), inv.moment(&r.Timestamp, now), r.Severity, r.Action, r.Outcome, r.Actor, r.Target, r.Message})
			if n++; limit > 0 && n >= limit {
				break
			}
		}
		if inv.json {
			return nil
		}
		return inv.printTable(rows)
	})
}

func (inv *invocation) auditExportCommand() *cobra.Command {
	var f client.AuditFilter
	var table bool
	cmd := &cobra.Command{
		Use: "export", Short: "Print the whole audit with its checkpoints, to be verified elsewhere", Args: noArgs,
		Long: "Prints the whole audit with its checkpoints, as lines of JSON that `aurea audit verify` reads. With --csv it prints a table of what the search finds, which is no proof.",
	}
	finish := auditFilter(cmd, &f)
	cmd.Flags().BoolVar(&table, "csv", false, "print a table")
	return inv.asking(cmd, func(ctx context.Context, c *client.Client, _ []string) error {
		finish(time.Now())
		export := func() (io.ReadCloser, error) { return c.ExportAudit(ctx) }
		if table {
			export = func() (io.ReadCloser, error) { return c.ExportAuditCSV(ctx, f) }
		}
		body, err := export()
		if err != nil {
			return err
		}
		_, err = io.Copy(inv.Out, body)
		return errors.Join(err, body.Close())
	})
}

func (inv *invocation) auditCheckpointCommand() *cobra.Command {
	return inv.asking(&cobra.Command{
		Use: "checkpoint", Short: "Print a signed checkpoint, to be kept elsewhere", Args: noArgs,
		Long: "Prints a signed checkpoint of all records that there are. Keep it where nobody reaches it who can write the database: against it, `aurea audit verify` finds whatever is done to those records later.",
	}, func(ctx context.Context, c *client.Client, _ []string) error {
		got, err := c.AuditCheckpoint(ctx)
		if err != nil {
			return err
		}
		if inv.json {
			return inv.printJSON(got)
		}
		_, err = io.WriteString(inv.Out, got.Checkpoint)
		return err
	})
}

func (inv *invocation) auditKeyCommand() *cobra.Command {
	return inv.asking(&cobra.Command{Use: "key", Short: "Print the public key that checks checkpoints", Args: noArgs},
		func(ctx context.Context, c *client.Client, _ []string) error {
			got, err := c.AuditCheckpoint(ctx)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(inv.Out, plain(got.Key))
			return err
		})
}

func (inv *invocation) auditVerifyCommand() *cobra.Command {
	var checkpoint string
	var keys []string
	cmd := &cobra.Command{
		Use: "verify FILE", Short: "Verify an export, without a server", Args: exactly("file"),
		Long: "Verifies what `aurea audit export` wrote (- is the standard input) against a checkpoint that you kept, and against those in it that one of the keys signed. It names the first record that is not what it was, and ends with 4. Without a checkpoint of yours a log whose end was cut off cannot be told from a whole one.",
	}
	cmd.Flags().StringVar(&checkpoint, "checkpoint", "", "file with a checkpoint that you trust")
	cmd.Flags().StringArrayVar(&keys, "key", nil, "public key of a signer, or a file with one; may be given again")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if checkpoint == "" && len(keys) == 0 {
			return usage(cmd, "say what to verify it against: --checkpoint, --key, or both")
		}
		return inv.verifyAudit(args[0], checkpoint, keys)
	}
	return cmd
}

// maxTrusted bounds the files with a checkpoint or a key.
const maxTrusted = 64 << 10

func (inv *invocation) verifyAudit(path, checkpoint string, keys []string) error {
	verifiers, err := auditKeys(keys)
	if err != nil {
		return err
	}
	var trusted []audit.Checkpoint
	if checkpoint != "" {
		text, err := readSmall(checkpoint)
		if err != nil {
			return err
		}
		c, signed, err := audit.OpenCheckpoint(text, verifiers...)
		if err == nil && !signed && len(verifiers) > 0 {
			err = errors.New("none of the keys signed it")
		}
		if err != nil {
			return fault.New(fault.Invalid, "checkpoint %s: %w", checkpoint, err)
		}
		trusted = append(trusted, c)
	}
	in := inv.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return fault.New(fault.NotFound, "open the export: %w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	got, err := audit.VerifyExport(in, trusted, verifiers...)
	var found *audit.Finding
	if errors.As(err, &found) {
		if inv.json {
			err = inv.printJSON(map[string]any{"ok": false, "finding": found})
			return errors.Join(err, quietError{fault.New(fault.Conflict, "%w", found)})
		}
		return fault.New(fault.Conflict, "the audit is not what it was: %w", found).WithCode("audit_tampered")
	}
	if err != nil {
		return err
	}
	return inv.printVerified(got, len(trusted) > 0)
}

func (inv *invocation) printVerified(got audit.Verified, anchored bool) error {
	if inv.json {
		return inv.printJSON(map[string]any{"ok": true, "result": got})
	}
	_, err := fmt.Fprintf(inv.Out, "verified %d records, and the hashes of %d that were purged; %d signed checkpoints hold\n", got.Records, got.Purged, got.Checkpoints)
	if rest := got.Records + got.Purged - got.Confirmed; err == nil && rest > 0 {
		_, err = fmt.Fprintf(inv.Out, "the last %d records are confirmed by no checkpoint\n", rest)
	}
	if err == nil && !anchored {
		_, err = fmt.Fprintln(inv.Out, "without --checkpoint nobody can tell whether its end was cut off")
	}
	return err
}

// auditKeys reads public keys, each given as it is or as the name of a file.
func auditKeys(given []string) (verifiers []note.Verifier, err error) {
	for _, key := range given {
		text := key
		if _, err := note.NewVerifier(key); err != nil {
			if text, err = readSmall(key); err != nil {
				return nil, err
			}
		}
		v, err := note.NewVerifier(strings.TrimSpace(text))
		if err != nil {
			return nil, fault.New(fault.Invalid, "%.100q is no public key: %w", key, err)
		}
		verifiers = append(verifiers, v)
	}
	return verifiers, nil
}

func readSmall(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fault.New(fault.NotFound, "read %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxTrusted))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return string(b), nil
}
