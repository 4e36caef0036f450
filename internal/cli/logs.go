package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/aurea-dev/aurea/client"
)

func (inv *invocation) logsCommand() *cobra.Command {
	var follow, raw bool
	var stream string
	cmd := inv.asking(&cobra.Command{
		Use: "logs ID", Short: "Print the output of a job", Args: exactly("job"),
		Long: "Prints what the job wrote to its stdout and stderr, each to ours; of a job of a session, once it has ended.\nOn a terminal, control characters are left out unless --raw is given: they could take it over.",
	}, func(ctx context.Context, c *client.Client, args []string) error {
		streams := []string{client.Stdout, client.Stderr}
		if stream != "" {
			streams = []string{stream}
		}
		if err := inv.logs(ctx, c, args[0], streams, follow, raw); err != nil {
			return err
		}
		return inv.sessionLogs(ctx, c, args[0], stream, raw)
	})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the job has ended")
	cmd.Flags().BoolVar(&raw, "raw", false, "print every byte, also on a terminal")
	cmd.Flags().StringVar(&stream, "stream", "", "only stdout, or only stderr")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if stream != "" && stream != client.Stdout && stream != client.Stderr {
			return usage(cmd, "--stream must be stdout or stderr")
		}
		return nil
	}
	return cmd
}

// logs copies the streams side by side when they are followed, and one after
// the other when they are not.
func (inv *invocation) logs(ctx context.Context, c *client.Client, id string, streams []string, follow, raw bool) error {
	var turn sync.Mutex
	errs := make([]error, len(streams))
	var all sync.WaitGroup
	for i, name := range streams {
		copyOne := func() {
			_, errs[i] = c.Logs(ctx, id, client.LogsOptions{Stream: name, Follow: follow}, inv.logWriter(&turn, name, raw))
		}
		if follow {
			all.Go(copyOne)
		} else if copyOne(); errs[i] != nil {
			break
		}
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// ofSession is to whom the jobs of sessions are bound.
const ofSession = "@session"

// sessionLogs prints the output of a job of a session, which is that of an exec
// in the session's sandbox; of any other job it prints nothing. Where the exec
// cannot be seen, or is forgotten, the job's details have the first of it.
func (inv *invocation) sessionLogs(ctx context.Context, c *client.Client, id, only string, raw bool) error {
	j, err := c.Job(ctx, id)
	if err != nil || or(j.AssignedModel, "") != ofSession {
		return err
	}
	var d struct {
		Sandbox string `json:"sandbox_id"`
		Exec    string `json:"exec_id"`
		Stdout  string `json:"stdout"`
		Stderr  string `json:"stderr"`
	}
	if json.Unmarshal(j.Details, &d) != nil || d.Sandbox == "" || d.Exec == "" {
		return nil // it has not ended, or nothing was started
	}
	var refused *client.Problem
	if _, err := c.Exec(ctx, d.Sandbox, d.Exec, 0); err == nil {
		return inv.execLogs(ctx, c, d.Sandbox, d.Exec, only, false, raw)
	} else if !errors.As(err, &refused) || !slices.Contains([]int{http.StatusForbidden, http.StatusNotFound, http.StatusGone}, refused.Status) {
		return err
	}
	var turn sync.Mutex
	for _, x := range []struct{ stream, text string }{{client.Stdout, d.Stdout}, {client.Stderr, d.Stderr}} {
		if x.text == "" || only != "" && only != x.stream {
			continue
		}
		if _, err := io.WriteString(inv.logWriter(&turn, x.stream, raw), x.text); err != nil {
			return err
		}
	}
	return nil
}

func (inv *invocation) logWriter(turn *sync.Mutex, stream string, raw bool) io.Writer {
	if inv.json {
		return &jsonLog{inv: inv, turn: turn, stream: stream}
	}
	w := inv.Out
	if stream == client.Stderr {
		w = inv.Err
	}
	if _, _, ok := terminal(w); ok && !raw {
		return harmless{w}
	}
	return w
}

// jsonLog prints each piece of output as an object: as text, or in base64
// where it is none.
type jsonLog struct {
	inv    *invocation
	turn   *sync.Mutex
	stream string
}

func (l *jsonLog) Write(p []byte) (int, error) {
	line := struct {
		Stream string `json:"stream"`
		Text   string `json:"text,omitempty"`
		Base64 []byte `json:"base64,omitempty"`
	}{Stream: l.stream}
	if utf8.Valid(p) {
		line.Text = string(p)
	} else {
		line.Base64 = p
	}
	l.turn.Lock()
	defer l.turn.Unlock()
	return len(p), l.inv.printJSON(line)
}
