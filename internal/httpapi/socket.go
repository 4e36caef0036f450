package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/event"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
	"github.com/aurea-dev/aurea/internal/policy"
)

// cursorHeader tells, in the answer to the handshake, where in the record a
// reader begins, so that one that loses its connection before its first event
// can come back there.
const cursorHeader = "Aurea-Cursor"

// SocketEvent is an event as sockets send it: the stored event, with the words
// that their readers know besides our own.
type SocketEvent struct {
	Seq       int64      `json:"seq" doc:"Its place in the record: reconnect with after=seq."`
	Type      event.Type `json:"type"`
	EventType event.Type `json:"event_type" doc:"The same as type."`
	Version   int        `json:"version"`
	Entity    string     `json:"entity_type"`
	EntityID  string     `json:"entity_id"`
	JobID     string     `json:"job_id,omitempty"`
	RootID    string     `json:"root_job_id,omitempty"`
	ProjectID int64      `json:"project_id,omitempty"`
	Actor     string     `json:"actor"`
	At        time.Time  `json:"ts"`
	Payload   Object     `json:"payload"`
}

func socketEvent(e *event.Event) SocketEvent {
	payload := Object(e.Data)
	if len(payload) == 0 {
		payload = Object("{}")
	}
	return SocketEvent{
		Seq: e.Seq, Type: e.Type, EventType: e.Type, Version: e.Version, Entity: e.Entity, EntityID: e.EntityID,
		JobID: e.JobID, RootID: e.RootID, ProjectID: e.ProjectID, Actor: e.Actor, At: e.At, Payload: payload,
	}
}

func (a *API) registerSockets() {
	a.socket("/ws/events", "watchEvents", "Follow events by WebSocket",
		"Starts with what happens from now on, unless after says where.", a.openEvents)
	a.socket("/ws/job/{id}", "watchJob", "Follow the events of a job by WebSocket",
		"Starts with the first event of the job, unless after says where.", a.openJob)
}

// opening is how a socket begins: it returns the filter, or why not. What it
// narrows is kept when the reader subscribes anew.
type opening func(ctx context.Context, r *http.Request, s *Subscription) (event.Filter, error)

func (a *API) openEvents(ctx context.Context, _ *http.Request, s *Subscription) (event.Filter, error) {
	f, err := s.filter(0)
	if err == nil && s.After == nil {
		f.After, err = a.cfg.Manager.LastEvent(ctx)
	}
	return f, err
}

func (a *API) openJob(ctx context.Context, r *http.Request, s *Subscription) (event.Filter, error) {
	id := r.PathValue("id")
	if err := checkID("job", id); err != nil {
		return event.Filter{}, err
	}
	if _, err := a.cfg.Manager.Job(ctx, id); err != nil {
		return event.Filter{}, err
	}
	f, err := s.filter(0)
	f.JobID = id
	return f, err
}

// socket adds a route that is answered by a WebSocket, under both of its
// paths.
func (a *API) socket(path, id, summary, detail string, open opening) {
	for _, p := range paths(version + path) {
		a.routes = append(a.routes, Route{Method: http.MethodGet, Path: p, Action: policy.Read})
		a.mux.HandleFunc("GET "+p, func(w http.ResponseWriter, r *http.Request) { a.serveSocket(w, r, open) })
	}
	a.huma.OpenAPI().AddOperation(a.socketOperation(path, id, summary, detail))
}

// serveSocket answers a request for a socket. A browser shows its page nothing
// of an answer that is no socket, so refusals are close codes: the status of
// the problem plus 4000.
func (a *API) serveSocket(w http.ResponseWriter, r *http.Request, open opening) {
	ctx, err := a.admit(w, withToken(r), policy.Read)
	if !isUpgrade(r) {
		if err == nil {
			w.Header().Set("Upgrade", "websocket")
			err = problem.New(http.StatusUpgradeRequired, "websocket_only", "This path is a WebSocket; open it with a WebSocket client. GET /events has the same events for plain HTTP.")
		}
		a.refuse(w, r, err)
		return
	}
	if !a.trusts(r) {
		a.refuse(w, r, problem.New(http.StatusForbidden, "foreign_origin",
			"A page of another site opened this WebSocket. Use it from a page of this server, from outside a browser, or add the origin to the trusted ones."))
		return
	}
	var f socketFollower
	if err == nil {
		f, err = a.newFollower(ctx, r, open) //nolint:contextcheck // the connection outlives the request
	}
	if err == nil {
		defer f.leave()
		w.Header().Set(cursorHeader, strconv.FormatInt(f.filter.After, 10))
	}
	conn, accepted := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true}) // trusts has checked it
	if accepted != nil {
		guard.NoteError(r.Context(), accepted) // Accept has answered
		return
	}
	if !a.sockets.enter() {
		err = errStopping
	} else {
		defer a.sockets.open.Done()
	}
	if err == nil {
		f.conn = conn
		err = f.run() //nolint:contextcheck // the connection is not the request's any more
	} else {
		bounded, cancel := context.WithTimeoutCause(a.sockets.writes, a.sockets.pace.write, errStuck) //nolint:contextcheck // the connection is not the request's any more
		defer cancel()
		_ = writeMessage(bounded, conn, errorMessage(err)) //nolint:contextcheck // as above; the close code says it again
	}
	a.closeSocket(r.Context(), conn, err)
}

// closeSocket ends a socket with the code that stands for err.
func (a *API) closeSocket(ctx context.Context, conn *websocket.Conn, err error) {
	if errors.Is(err, errReaderGone) {
		_ = conn.CloseNow()
		return
	}
	code, reason := closeCode(err)
	if code != websocket.StatusGoingAway {
		guard.NoteError(ctx, err)
	}
	_ = conn.Close(code, clip(reason, 100)) // the reader may have gone
	_ = conn.CloseNow()
}

// closeCode returns the code that ends a socket because of err, and the reason.
func closeCode(err error) (code websocket.StatusCode, reason string) {
	var end *socketEnd
	if errors.As(err, &end) {
		return end.code, end.reason
	}
	p := problem.From(err)
	switch p.Status {
	case http.StatusServiceUnavailable:
		return websocket.StatusTryAgainLater, p.Code
	case http.StatusInternalServerError:
		return websocket.StatusInternalError, p.Code
	}
	return websocket.StatusCode(4000 + p.Status), p.Code
}

// isUpgrade reports whether a request asks for a WebSocket.
func isUpgrade(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Upgrade"), func(v string) bool {
		return slices.ContainsFunc(strings.Split(v, ","), func(t string) bool { return strings.EqualFold(strings.TrimSpace(t), "websocket") })
	})
}

// withToken returns a request that carries its key where admit looks for it: a
// page cannot set the headers of a WebSocket.
func withToken(r *http.Request) *http.Request {
	token := r.URL.Query().Get("token")
	if token == "" || secretOf(r) != "" {
		return r
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// trusts reports whether a WebSocket may be opened by the page that did: no
// rule of browsers keeps a page from opening one to any server. Outside a
// browser there is no Origin.
func (a *API) trusts(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	u, err := url.Parse(origins[0])
	if err != nil || len(origins) > 1 || u.Host == "" {
		return false
	}
	return strings.EqualFold(u.Host, r.Host) || slices.Contains(a.cfg.Origins, origins[0])
}

// socketOperation is as much of a socket as OpenAPI can say.
func (a *API) socketOperation(path, id, summary, detail string) *huma.Operation {
	schemas := a.huma.OpenAPI().Components.Schemas
	schemas.Schema(reflect.TypeFor[Subscription](), true, "Subscription")
	schemas.Schema(reflect.TypeFor[SocketEvent](), true, "SocketEvent")
	query := func(name, doc string, s *huma.Schema) *huma.Param {
		return &huma.Param{Name: name, In: "query", Description: doc, Schema: s}
	}
	words, whole := &huma.Schema{Type: huma.TypeString}, &huma.Schema{Type: huma.TypeInteger, Format: "int64"}
	op := &huma.Operation{
		OperationID: id, Method: http.MethodGet, Path: version + path, Summary: summary, Tags: []string{"events"},
		Description: detail + " Each message of the server is a SocketEvent as JSON, or {\"type\":\"ping\",\"seq\":…} after 30 seconds of silence, " +
			"{\"status\":\"subscribed\",\"seq\":…}, {\"type\":\"pong\"}, or {\"type\":\"error\",\"code\":…,\"error\":…}. " +
			"The reader may send a Subscription, which takes the place of the filters, or {\"type\":\"ping\"}. " +
			"Close codes: 4000 plus the status of a problem (4401 no good key, 4403, 4404, 4408 the reader does not read or answers no ping, 4410 the cursor is older than the history, 4422, 4429), " +
			"1001 the server stops, 1003 a binary message, 1007 invalid UTF-8, 1009 a message that is too large, 1013 not ready. Reconnect with after set to the last seq: nothing is lost.",
		Parameters: []*huma.Param{
			query("event_types", "Only these types, separated by commas.", words),
			query("entity_types", "Only of these sorts of thing, separated by commas.", words),
			query("entity_ids", "Only of these things, separated by commas.", words),
			query("job_id", "Only of this job.", words), query("root_job_id", "Only of the jobs of this plan.", words),
			query("project_id", "Only of this project.", whole),
			query("after", "Only events with a larger seq; 0 is from the beginning.", whole),
			query("token", "The key, for browsers, which cannot set headers here.", words),
		},
		Responses: map[string]*huma.Response{"101": {Description: "A WebSocket."}, "default": a.problemResponse()},
		Security:  []map[string][]string{{"bearer": {}}, {"key": {}}}, Extensions: map[string]any{"x-permission": string(policy.Read)},
	}
	if strings.Contains(path, "{id}") {
		op.Parameters = append([]*huma.Param{{Name: "id", In: "path", Required: true, Description: "The id of the job.", Schema: &huma.Schema{Type: huma.TypeString, Format: "uuid"}}}, op.Parameters...)
	}
	return op
}
