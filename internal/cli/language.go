package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
)

func (inv *invocation) languagesCommand() *cobra.Command {
	return inv.asking(&cobra.Command{
		Use: "languages", Short: "List the languages that programs can be written in, and which can be run now", Args: noArgs,
	}, func(ctx context.Context, c *client.Client, _ []string) error {
		list, err := c.Languages(ctx)
		if err != nil {
			return err
		}
		if inv.json {
			return inv.printJSON(list)
		}
		rows := [][]string{{"NAME", "ALSO", "FILE", "ACTIVE"}}
		for _, l := range list {
			active := "yes"
			if !l.Active {
				active = "no: " + l.Reason
			}
			rows = append(rows, []string{l.Name, orDash(strings.Join(l.Aliases, " ")), l.File, active})
		}
		return inv.printTable(rows)
	})
}

func (inv *invocation) poolCommand() *cobra.Command {
	return inv.asking(&cobra.Command{
		Use: "pool", Short: "Show the sandboxes that wait for code", Args: noArgs,
		Long: "Shows which sandboxes wait for code at each worker: how many shall wait and do, how many runs\nfound one (hits) or none (misses), and how long the oldest has waited.",
	}, func(ctx context.Context, c *client.Client, _ []string) error {
		list, err := c.Pool(ctx)
		if err != nil {
			return err
		}
		if inv.json {
			return inv.printJSON(list)
		}
		rows := [][]string{{"WORKER", "LANGUAGE", "IMAGE", "DRIVER", "WAITING", "MAKING", "HITS", "MISSES", "DISCARDED", "OLDEST"}}
		for _, p := range list {
			rows = append(rows, []string{
				p.WorkerID, p.Language, orDash(p.Image), p.Driver, fmt.Sprintf("%d of %d", p.Waiting, p.Wanted), strconv.Itoa(p.Making),
				strconv.FormatInt(p.Hits, 10), strconv.FormatInt(p.Misses, 10), strconv.FormatInt(p.Discards, 10),
				span(time.Duration(p.Oldest * float64(time.Second))),
			})
		}
		return inv.printTable(rows)
	})
}
