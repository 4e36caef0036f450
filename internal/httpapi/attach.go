package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
	"github.com/aurea-dev/aurea/internal/live"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

// attachPath is where an exec is attached to.
const attachPath = "/sandboxes/{sandbox}/execs/{exec}/attach"

func (a *API) registerAttach() {
	a.routes = append(a.routes, Route{Method: http.MethodGet, Path: version + attachPath, Action: policy.Control})
	a.mux.HandleFunc("GET "+version+attachPath, a.serveAttach)
	number := &huma.Schema{Type: huma.TypeInteger, Format: "int64"}
	word := &huma.Schema{Type: huma.TypeString}
	a.huma.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "attachExec", Method: http.MethodGet, Path: version + attachPath, Summary: "Talk to an exec by WebSocket", Tags: []string{"execs"},
		Description: "The server sends output as binary messages: one byte that names the stream (1 stdout, 2 stderr), eight bytes with its offset (big endian), and the bytes; and as text {\"type\":\"end\", …} when the exec has ended, before it closes with 1000. " +
			"The client sends standard input as binary messages, and as text {\"type\":\"resize\",\"cols\":80,\"rows\":24}, {\"type\":\"signal\",\"signal\":2}, {\"type\":\"close_stdin\"}. " +
			"A connection that breaks ends nothing: open another with the offsets that were seen. With stdin_offset input is counted from there on, and each message of it (and close_stdin) is answered by " +
			"{\"type\":\"input\",\"offset\":…} once the exec has taken it, or by {\"type\":\"error\",\"of\":\"input\",\"status\":…,\"code\":…,\"error\":…}, after which no more is taken here: " +
			"say again from the last offset on another connection, and nothing is lost or written twice. Close codes are those of the other sockets.",
		Parameters: []*huma.Param{
			{Name: "sandbox", In: "path", Required: true, Schema: word},
			{Name: "exec", In: "path", Required: true, Schema: word},
			{Name: "stdout_offset", In: "query", Description: "How many bytes of stdout to leave out.", Schema: number},
			{Name: "stderr_offset", In: "query", Description: "How many bytes of stderr to leave out.", Schema: number},
			{Name: "stdin_offset", In: "query", Description: "How many bytes of input were written before; without it input goes where the input stands, and is not answered.", Schema: number},
			{Name: "token", In: "query", Description: "The key, for browsers, which cannot set headers here.", Schema: word},
		},
		Responses: map[string]*huma.Response{"101": {Description: "A WebSocket."}, "default": a.problemResponse()},
		Security:  []map[string][]string{{"bearer": {}}, {"key": {}}}, Extensions: map[string]any{"x-permission": string(policy.Control)},
	})
}

// serveAttach joins a socket and an exec.
func (a *API) serveAttach(w http.ResponseWriter, r *http.Request) {
	ctx, err := a.admit(w, withToken(r), policy.Control)
	if !isUpgrade(r) {
		if err == nil {
			w.Header().Set("Upgrade", "websocket")
			err = problem.New(http.StatusUpgradeRequired, "websocket_only", "This path is a WebSocket; open it with a WebSocket client. The exec's output is at …/output, its input at …/input.")
		}
		a.refuse(w, r, err)
		return
	}
	if !a.trusts(r) {
		a.refuse(w, r, problem.New(http.StatusForbidden, "foreign_origin",
			"A page of another site opened this WebSocket. Use it from a page of this server, from outside a browser, or add the origin to the trusted ones."))
		return
	}
	t := &attached{api: a, exec: r.PathValue("exec")}
	if err == nil {
		var leave func()
		if leave, err = a.attachment(ctx, r, t); err == nil { //nolint:contextcheck // ctx is the request's, with its caller
			defer leave()
		}
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
		conn.SetReadLimit(maxAttachMessage)
		t.conn = conn
		t.run(context.WithoutCancel(ctx)) //nolint:contextcheck // the connection is not the request's any more
		return
	}
	a.closeSocket(r.Context(), conn, err)
}

// maxAttachMessage bounds what a client sends at once.
const maxAttachMessage = 1 << 20

// attachment checks what a socket is to be attached to, and from where.
func (a *API) attachment(ctx context.Context, r *http.Request, t *attached) (leave func(), err error) {
	if err := checkSandboxID(r.PathValue("sandbox")); err != nil {
		return nil, err
	}
	if err := checkID("exec", t.exec); err != nil {
		return nil, err
	}
	in := &ExecPath{Exec: t.exec}
	in.ID = r.PathValue("sandbox")
	if _, err := a.exec(ctx, in); err != nil {
		return nil, err
	}
	t.input.next = -1
	for name, into := range map[string]*int64{"stdout_offset": &t.from.Stdout, "stderr_offset": &t.from.Stderr, "stdin_offset": &t.input.next} {
		text := r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		if *into, err = strconv.ParseInt(text, 10, 64); err != nil || *into < 0 {
			return nil, fault.Field("query."+name, "must be a number of bytes")
		}
	}
	return a.streams.enter(ctx)
}

// attached is a socket that is joined to an exec.
type attached struct {
	api  *API
	conn *websocket.Conn
	exec string
	from sandbox.Offsets
	// input waits for the exec apart from what else a client says, so that an
	// exec that does not read can still be sent a signal.
	input attachedInput
	mu    sync.Mutex // of writes
}

var errEnded = &socketEnd{code: websocket.StatusNormalClosure, reason: "ended"}

// run carries output and input until the exec has ended, or the socket has, and
// closes it. The socket is read until it is closed: a read that is broken off
// takes the connection with it, and the reason would never arrive.
func (t *attached) run(base context.Context) {
	ctx, stop := t.api.untilEnding(base)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	reading, stopReading := context.WithCancelCause(base)
	t.input.queue = make(chan inputPiece, maxQueuedInput)
	var tasks sync.WaitGroup
	tasks.Go(func() { cancel(t.listen(ctx, reading)) })
	tasks.Go(func() { t.feed(ctx) })
	err := t.carry(ctx)
	cancel(err)
	t.api.closeSocket(base, t.conn, err)
	stopReading(nil)
	tasks.Wait()
}

// carry sends the output, and the end of the exec behind it.
func (t *attached) carry(ctx context.Context) error {
	err := t.api.cfg.Keeper.FollowExec(ctx, t.exec, t.from, 0, func(p live.Piece) error { return t.piece(ctx, p) })
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if errors.Is(err, errStreamEnds) {
			err = errStopping
		}
		return err
	}
	e, err := t.api.cfg.Keeper.Exec(ctx, t.exec)
	if err != nil {
		return err
	}
	b := execBody(&e)
	if err := t.say(ctx, map[string]any{"type": "end", "state": b.State, "verdict": b.Verdict, "exit_code": b.ExitCode, "cause": b.Cause}); err != nil {
		return err
	}
	return errEnded
}

func (t *attached) piece(ctx context.Context, p live.Piece) error {
	const head = 9
	msg := make([]byte, head, head+len(p.Data))
	msg[0] = byte(p.Stream)
	for i := range 8 {
		msg[1+i] = byte(p.Offset >> (56 - 8*i)) //nolint:gosec // a byte of it
	}
	return t.write(ctx, websocket.MessageBinary, append(msg, p.Data...))
}

func (t *attached) say(ctx context.Context, facts map[string]any) error {
	data, err := json.Marshal(facts)
	if err != nil {
		return err
	}
	return t.write(ctx, websocket.MessageText, data)
}

func (t *attached) write(ctx context.Context, kind websocket.MessageType, data []byte) error {
	// Not broken off with ctx, for the same reason as reads.
	bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), t.api.sockets.pace.write, errStuck)
	defer cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.conn.Write(bounded, kind, data); err != nil {
		if errors.Is(context.Cause(bounded), errStuck) {
			return errStuck
		}
		return errReaderGone
	}
	return nil
}

// attachWord is what a client says beside its input.
type attachWord struct {
	Type   string `json:"type"`
	Cols   int64  `json:"cols,omitempty"`
	Rows   int64  `json:"rows,omitempty"`
	Signal int64  `json:"signal,omitempty"`
	Tree   bool   `json:"tree,omitempty"`
}

// listen takes what the client sends, until it is gone. What the exec does not
// take is told and ends nothing.
func (t *attached) listen(ctx, reading context.Context) error {
	for {
		kind, data, err := t.conn.Read(reading)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return errReaderGone
		}
		if kind == websocket.MessageBinary {
			err = t.input.put(ctx, inputPiece{data: data})
		} else {
			err = t.obey(ctx, data)
		}
		if err != nil && fault.CodeOf(err) != "exec_ended" {
			p := problem.From(err)
			if err := t.say(ctx, map[string]any{"type": "error", "code": p.Code, "error": p.Detail}); err != nil {
				return err
			}
		}
	}
}

func (t *attached) obey(ctx context.Context, data []byte) error {
	var word attachWord
	if err := json.Unmarshal(data, &word); err != nil {
		return fault.Field("message", "is not a JSON object")
	}
	switch word.Type {
	case "resize":
		return t.api.resize(ctx, t.exec, ResizeBody{Cols: word.Cols, Rows: word.Rows})
	case "signal":
		return t.api.cfg.Keeper.SignalExec(ctx, t.exec, int(word.Signal), word.Tree)
	case "close_stdin":
		return t.input.put(ctx, inputPiece{last: true})
	case "ping":
		return t.say(ctx, map[string]any{"type": "pong"})
	}
	return fault.Field("type", "%q is not known; the types are resize, signal, close_stdin, ping", clip(word.Type, 40))
}
