package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ledger is what clients were promised.
type ledger struct {
	mu   sync.Mutex
	kept map[string]promise // by idempotency key
}

// promise is an acknowledged plan.
type promise struct {
	body []byte
	submission
}

// load submits plans under a key each until ctx ends. A plan that was begun is
// insisted on, under the same key, also after that: an answer that was lost
// leaves no other way to know.
func (l *ledger) load(ctx context.Context, k *asker, client int, r *rand.Rand) error {
	for n := 0; ctx.Err() == nil; n++ {
		key, body := fmt.Sprintf("client-%d-plan-%d", client, n), randomPlan(r, fmt.Sprintf("Plan %d of %d", n, client))
		first, err := l.insist(k, key, body)
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.kept[key] = promise{body, first}
		l.mu.Unlock()
		pause(ctx, time.Duration(20+r.IntN(250))*time.Millisecond)
	}
	return nil
}

// insist sends a plan until it is acknowledged.
func (l *ledger) insist(k *asker, key string, body []byte) (s submission, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		a, err := k.ask(ctx, http.MethodPost, "/prds", body, "Idempotency-Key", key)
		switch {
		case err == nil && a.status < http.StatusInternalServerError:
			return s, a.into(http.StatusCreated, &s)
		case !pause(ctx, 20*time.Millisecond):
			return s, fmt.Errorf("%s is not acknowledged: %w, %s", key, errors.Join(err, context.Cause(ctx)), a)
		}
	}
}

// randomPlan is a plan of one to three tasks of several sorts.
func randomPlan(r *rand.Rand, title string) []byte {
	type object = map[string]any
	tasks := make([]object, 0, 3)
	for i := range 1 + r.IntN(3) {
		task := object{"key": strconv.Itoa(i)}
		switch r.IntN(6) {
		case 0: // bare
		case 1:
			task["payload"] = object{"action": "exec", "command": []string{"big"}, "env": object{"FAKE_OUTPUT_BYTES": "200KB"}}
		case 2:
			task["payload"] = object{"action": "run", "language": "sh", "code": "mkdir artifacts; echo kept > artifacts/a.txt; echo said", "env": object{"FAKE_SLEEP": "20ms"}}
		case 3:
			task["role"], task["max_retries"] = claimerRole, 100
		default:
			task["payload"] = object{"action": "exec", "command": []string{"true"}, "env": object{"FAKE_SLEEP": fmt.Sprintf("%dms", r.IntN(500))}}
		}
		if i > 0 && r.IntN(3) == 0 && task["role"] == nil {
			task["depends_on"] = []string{strconv.Itoa(i - 1)}
		}
		tasks = append(tasks, task)
	}
	body, _ := json.Marshal(object{"title": title, "project_id": 1 + r.IntN(3), "tasks": tasks})
	return body
}

// follower reads the stream of events from the beginning, and comes back with
// its last id whenever the stream breaks.
type follower struct {
	mu     sync.Mutex
	seen   []streamed
	breaks int
}

// streamed is an event as it came.
type streamed struct {
	id   int64
	data string
}

func (f *follower) last() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.seen) == 0 {
		return 0
	}
	return f.seen[len(f.seen)-1].id
}

// follow goes on until ctx ends.
func (f *follower) follow(ctx context.Context, k *asker) {
	for ctx.Err() == nil {
		_ = f.once(ctx, k) // a break is what this is about
		f.mu.Lock()
		f.breaks++
		f.mu.Unlock()
		pause(ctx, 10*time.Millisecond)
	}
}

func (f *follower) once(ctx context.Context, k *asker) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.base+"/events", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", strconv.FormatInt(f.last(), 10))
	res, err := k.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return f.read(res.Body)
}

// read takes whole events only: what comes before a break without its empty
// line was never said.
func (f *follower) read(r io.Reader) error {
	var id int64
	var data []byte
	for in := bufio.NewReader(r); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\n")
		switch name, value, _ := strings.Cut(string(line), ": "); {
		case len(line) == 0 && data != nil:
			f.mu.Lock()
			f.seen = append(f.seen, streamed{id, string(data)})
			f.mu.Unlock()
			data = nil
		case name == "id":
			id, _ = strconv.ParseInt(value, 10, 64)
		case name == "data":
			data = []byte(value)
		}
	}
}
