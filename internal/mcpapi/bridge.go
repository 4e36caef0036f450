// Package mcpapi is the bridge: the entry for IDEs. It takes a command,
// forwards it unchanged to the manager, and returns the manager's answer.
//
// It keeps no state, holds no database handle, and knows the manager and
// nothing else.
package mcpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
)

const (
	// forwardTimeout is how long the manager may take to answer.
	forwardTimeout = 30 * time.Second
	// maxAnswer bounds what is taken from the manager.
	maxAnswer = 16 << 20
)

// Config is what the bridge is made of.
type Config struct {
	// ManagerURLs are the addresses of managers that share a database. One that
	// cannot be reached is passed over.
	ManagerURLs []string
	// Key is the bridge's own key. It is lent only to clients on loopback;
	// clients from elsewhere bring a key of their own, or reaching the bridge
	// would be as good as having its key.
	Key string
	// Loopback says that the bridge is bound to loopback.
	Loopback bool
	Hosts    []string     // further names of this server, without port
	Origins  []string     // origins whose pages may send commands
	Client   *http.Client // nil for one of its own
	Logger   *slog.Logger
}

// errSlow is the cause of a forward that took too long.
var errSlow = errors.New("the manager took too long")

type bridge struct {
	cfg    Config
	prds   []string
	client http.Client
}

// New makes the bridge.
func New(cfg Config) (http.Handler, error) {
	b := &bridge{cfg: cfg}
	for _, address := range cfg.ManagerURLs {
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("make bridge: %q is not the URL of a manager", address)
		}
		b.prds = append(b.prds, u.JoinPath("prds").String())
	}
	if len(b.prds) == 0 {
		return nil, errors.New("make bridge: it needs the URL of a manager")
	}
	if cfg.Client != nil {
		b.client = *cfg.Client
	}
	// A manager does not redirect; whoever does shall not get the key.
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mcp/command", b.command)
	mux.HandleFunc("GET /health", health)
	mux.HandleFunc("/", nowhere)
	h, err := guard.Wrap(mux, guard.Config{Loopback: cfg.Loopback, Hosts: cfg.Hosts, Origins: cfg.Origins, Logger: cfg.Logger})
	if err != nil {
		return nil, fmt.Errorf("make bridge: %w", err)
	}
	return h, nil
}

func health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"status":"ok"}`+"\n") // a client that has gone needs no answer
}

func nowhere(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/mcp/command" {
		w.Header().Set("Allow", http.MethodPost)
		problem.New(http.StatusMethodNotAllowed, "method_not_allowed", "Send commands with POST.").Write(w)
		return
	}
	problem.New(http.StatusNotFound, "no_such_path", "The bridge has POST /mcp/command and GET /health.").Write(w)
}

// command forwards one command.
func (b *bridge) command(w http.ResponseWriter, r *http.Request) {
	answer, err := b.forward(w, r)
	if err != nil {
		guard.NoteError(r.Context(), err)
		problem.From(err).Write(w)
		return
	}
	for _, name := range []string{"Content-Type", "Retry-After", "WWW-Authenticate", "Idempotency-Replayed"} {
		if v := answer.header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.body) // a client that has gone needs no answer
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (b *bridge) forward(w http.ResponseWriter, r *http.Request) (*answer, error) {
	key, err := b.key(r)
	if err != nil {
		return nil, err
	}
	body, err := guard.ReadBody(w, r)
	if err != nil {
		return nil, err
	}
	if err := checkCommand(body); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), forwardTimeout, errSlow)
	defer cancel()
	header := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}}
	header.Set("X-Request-ID", w.Header().Get("X-Request-ID"))
	if k := r.Header.Get("Idempotency-Key"); k != "" {
		header.Set("Idempotency-Key", k)
	}
	if key != "" {
		header.Set("Authorization", "Bearer "+key)
	}
	a, err := b.toAny(ctx, header, body)
	if err != nil {
		return nil, b.away(ctx, err)
	}
	return a, nil
}

// toAny sends a command to the first manager that can be reached. One that was
// reached and did not answer may have taken it, and is the last that is asked.
func (b *bridge) toAny(ctx context.Context, header http.Header, body []byte) (a *answer, err error) {
	for _, prds := range b.prds {
		req, reqErr := http.NewRequestWithContext(ctx, http.MethodPost, prds, bytes.NewReader(body))
		if reqErr != nil {
			return nil, fmt.Errorf("forward command: %w", reqErr)
		}
		req.Header = header.Clone()
		a, err = b.send(req)
		var op *net.OpError
		if err == nil || !errors.As(err, &op) || op.Op != "dial" {
			break
		}
	}
	return a, err
}

// key returns the key under which a command is forwarded.
func (b *bridge) key(r *http.Request) (string, error) {
	scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(rest), nil
	}
	if k := strings.TrimSpace(r.Header.Get("X-API-Key")); k != "" {
		return k, nil
	}
	if !b.cfg.Loopback {
		return "", fault.New(fault.Unauthenticated,
			"This bridge asks for a key: send it as \"Authorization: Bearer KEY\" or \"X-API-Key: KEY\".").WithCode("no_key")
	}
	return b.cfg.Key, nil
}

// checkCommand refuses what is no JSON object; the manager judges the rest.
func checkCommand(body []byte) error {
	if trimmed := bytes.TrimSpace(body); len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(trimmed) {
		return fault.Field("body", "A command is a JSON object.").WithCode("malformed_json")
	}
	return nil
}

func (b *bridge) send(req *http.Request) (*answer, error) {
	res, err := b.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	isJSON := kind == "application/json" || strings.HasSuffix(kind, "+json")
	if len(body) > maxAnswer || !isJSON || res.StatusCode < 200 || res.StatusCode >= 300 && res.StatusCode < 400 {
		return nil, problem.New(http.StatusBadGateway, "not_a_manager",
			fmt.Sprintf("What answers at %s is not a manager (status %d). Set MANAGER_URL to the manager's address.", b.manager(), res.StatusCode))
	}
	return &answer{status: res.StatusCode, header: res.Header, body: body}, nil
}

// away says why there is no answer, and what to do about it.
func (b *bridge) away(ctx context.Context, err error) error {
	var p *problem.Problem
	var timeout net.Error
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(context.Cause(ctx), errSlow), ctx.Err() == nil && errors.As(err, &timeout) && timeout.Timeout():
		return problem.New(http.StatusGatewayTimeout, "manager_timeout",
			fmt.Sprintf("The manager at %s did not answer within %s. It may have taken the command all the same: look at its jobs, or send the command again with the same Idempotency-Key.", b.manager(), forwardTimeout))
	case ctx.Err() != nil:
		return ctx.Err() // the client has gone
	}
	return problem.New(http.StatusBadGateway, "manager_away",
		fmt.Sprintf("The manager at %s cannot be reached (%s). Start it, or set MANAGER_URL to its address, and send the command again.", b.manager(), reason(err)))
}

// reason is the last link of a network error: "connection refused".
func reason(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err.Error()
	}
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err.Error()
	}
	return err.Error()
}

// manager names the manager without the password that its URL may hold.
func (b *bridge) manager() string {
	names := make([]string, len(b.cfg.ManagerURLs))
	for i, address := range b.cfg.ManagerURLs {
		u, err := url.Parse(address)
		if err != nil {
			return "MANAGER_URL"
		}
		names[i] = u.Redacted()
	}
	return strings.Join(names, " or ")
}
