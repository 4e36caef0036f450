package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/internal/config"
)

// looking makes a command that shows one answer of a server about runs: as it
// came with --json, as rows for people.
func (inv *invocation) looking(cmd *cobra.Command, path string, rows func(raw []byte) ([][]string, error)) *cobra.Command {
	offer(cmd, config.Flags(config.Client))
	cmd.Args = noArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := inv.load(cmd, config.Client)
		if err != nil {
			return err
		}
		key, err := cfg.LoadKey()
		if err != nil {
			return err
		}
		return inv.look(cmd.Context(), newRunner(cfg.Server, key), path, rows)
	}
	return cmd
}

func (inv *invocation) look(ctx context.Context, r *runner, path string, rows func(raw []byte) ([][]string, error)) error {
	defer r.close()
	var raw json.RawMessage
	if err := r.read(ctx, http.MethodGet, path, nil, &raw); err != nil {
		return err
	}
	if inv.json {
		return inv.printJSON(raw)
	}
	table, err := rows(raw)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return inv.printTable(table)
}

func (inv *invocation) languagesCommand() *cobra.Command {
	return inv.looking(&cobra.Command{Use: "languages", Short: "List the languages that programs can be written in, and which can be run now"},
		"/languages", func(raw []byte) ([][]string, error) {
			var list []struct {
				Name    string   `json:"name"`
				Aliases []string `json:"aliases"`
				File    string   `json:"file"`
				Active  bool     `json:"active"`
				Reason  string   `json:"reason"`
			}
			rows := [][]string{{"NAME", "ALSO", "FILE", "ACTIVE"}}
			err := json.Unmarshal(raw, &list)
			for _, l := range list {
				active := "yes"
				if !l.Active {
					active = "no: " + l.Reason
				}
				rows = append(rows, []string{l.Name, orDash(strings.Join(l.Aliases, " ")), l.File, active})
			}
			return rows, err
		})
}

func (inv *invocation) poolCommand() *cobra.Command {
	return inv.looking(&cobra.Command{
		Use: "pool", Short: "Show the sandboxes that wait for code",
		Long: "Shows which sandboxes wait for code at each worker: how many shall wait and do, how many runs\nfound one (hits) or none (misses), and how long the oldest has waited.",
	}, "/pool", func(raw []byte) ([][]string, error) {
		var list []struct {
			Worker   string  `json:"worker_id"`
			Driver   string  `json:"driver"`
			Image    string  `json:"image"`
			Language string  `json:"language"`
			Memory   int64   `json:"memory_bytes"`
			Wanted   int     `json:"wanted"`
			Waiting  int     `json:"waiting"`
			Making   int     `json:"making"`
			Hits     int64   `json:"hits"`
			Misses   int64   `json:"misses"`
			Discards int64   `json:"discards"`
			Oldest   float64 `json:"oldest_seconds"`
		}
		rows := [][]string{{"WORKER", "LANGUAGE", "IMAGE", "DRIVER", "WAITING", "MAKING", "HITS", "MISSES", "DISCARDED", "OLDEST"}}
		err := json.Unmarshal(raw, &list)
		for _, c := range list {
			rows = append(rows, []string{
				c.Worker, c.Language, orDash(c.Image), c.Driver, fmt.Sprintf("%d of %d", c.Waiting, c.Wanted), strconv.Itoa(c.Making),
				strconv.FormatInt(c.Hits, 10), strconv.FormatInt(c.Misses, 10), strconv.FormatInt(c.Discards, 10),
				span(time.Duration(c.Oldest * float64(time.Second))),
			})
		}
		return rows, err
	})
}
