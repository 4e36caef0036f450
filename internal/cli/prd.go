package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
	"github.com/aurea-dev/aurea/internal/fault"
)

func (inv *invocation) prdCommand() *cobra.Command {
	return group("prd", "Submit plans", inv.submitCommand())
}

// maxPRD is above what the server takes; it keeps a wrong file out of memory.
const maxPRD = 16 << 20

func (inv *invocation) submitCommand() *cobra.Command {
	var wait bool
	var key string
	cmd := inv.asking(&cobra.Command{
		Use: "submit FILE|-", Short: "Submit a PRD from a JSON or YAML file, or from standard input", Args: exactly("file, or - for standard input"),
		Example: "  aurea prd submit plan.yaml --wait\n  echo '{\"project_id\": 1, \"title\": \"Test PRD\", \"tasks\": [{\"role\": \"Employee\", \"payload\": {\"action\": \"create file\"}}]}' | aurea prd submit -",
	}, func(ctx context.Context, c *client.Client, args []string) error {
		doc, err := inv.readPRD(args[0])
		if err != nil {
			return err
		}
		s, err := c.SubmitDocument(ctx, doc, key)
		if err != nil {
			return err
		}
		if err := inv.printSubmission(s); err != nil || !wait {
			return err
		}
		return inv.wait(ctx, c, s)
	})
	cmd.Flags().BoolVarP(&wait, "wait", "w", false, "wait until the plan has ended; exit 7 unless it is COMPLETED")
	cmd.Flags().StringVar(&key, "idempotency-key", "", "submit at most once under this key")
	return cmd
}

func (inv *invocation) printSubmission(s client.Submission) error {
	if inv.json {
		return inv.printJSON(s)
	}
	if _, err := fmt.Fprintf(inv.Out, "plan %s\n", plain(s.RootJobID)); err != nil {
		return err
	}
	for _, id := range s.JobIDs {
		if _, err := fmt.Fprintf(inv.Out, "job  %s\n", plain(id)); err != nil {
			return err
		}
	}
	return nil
}

// readPRD returns the document as JSON. What begins like JSON goes to the
// server byte for byte, so that its messages fit what the user wrote.
func (inv *invocation) readPRD(name string) (json.RawMessage, error) {
	r := inv.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fault.New(fault.Invalid, "read the plan: %w", err).WithCode("bad_document")
		}
		defer func() { _ = f.Close() }()
		r = f
	}
	raw, err := io.ReadAll(io.LimitReader(r, maxPRD+1))
	switch {
	case err != nil:
		return nil, fault.New(fault.Invalid, "read the plan: %w", err).WithCode("bad_document")
	case len(raw) > maxPRD:
		return nil, fault.New(fault.TooLarge, "the plan is larger than %d MiB", maxPRD>>20)
	}
	return toJSON(raw)
}

func toJSON(raw []byte) (json.RawMessage, error) {
	trimmed := bytes.TrimSpace(raw)
	switch {
	case len(trimmed) == 0:
		return nil, fault.New(fault.Invalid, "the plan is empty").WithCode("bad_document")
	case trimmed[0] == '{' || trimmed[0] == '[' || trimmed[0] == '"':
		return trimmed, nil
	}
	fields, err := yaml.Parser().Unmarshal(raw)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the plan is neither JSON nor YAML: %s", strings.Join(strings.Fields(err.Error()), " ")).WithCode("bad_document")
	}
	doc, err := json.Marshal(fields)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the plan holds what JSON cannot: %w", err).WithCode("bad_document")
	}
	return doc, nil
}
