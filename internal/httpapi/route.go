package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
	"github.com/aurea-dev/aurea/internal/policy"
)

// version is the prefix of the documented paths.
const version = "/api/v1"

// public marks a route that asks for no caller.
const public policy.Action = ""

// elsewhere marks a route of another door, which says itself whom it lets in.
const elsewhere policy.Action = "elsewhere"

// ways is a mux that remembers what was registered.
type ways struct {
	*http.ServeMux
	patterns []string
}

func newWays() *ways { return &ways{ServeMux: http.NewServeMux()} }

// Handle registers a handler.
func (w *ways) Handle(pattern string, h http.Handler) {
	w.patterns = append(w.patterns, pattern)
	w.ServeMux.Handle(pattern, h)
}

// note adds what another door has registered.
func (w *ways) note(door http.Handler) {
	if d, ok := door.(interface{ Patterns() []string }); ok {
		w.patterns = append(w.patterns, d.Patterns()...)
	}
}

// HandleFunc registers a function.
func (w *ways) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	w.Handle(pattern, http.HandlerFunc(h))
}

// bare lists the first words of the paths that are also served without the
// version, for clients that know only those.
func bare() []string {
	return []string{"prds", "jobs", "events", "ws", "health", "ready", "run", "runs", "build-image", "admin"}
}

// route describes one operation.
type route struct {
	method string
	path   string // below version
	action policy.Action
	// own says that a sandbox's token opens it for that sandbox.
	own bool
	// class is what its requests are counted as, where the action does not say.
	class   class
	id      string
	tag     string
	summary string
	detail  string
	status  int // 200 unless set
	body    any // a value of the type that the body is read into; nil for none
	// example is a body that works as it stands, for those who try things out.
	example any
	// optional says that an empty body will do.
	optional bool
	// answers are the media types of an answer that is written as a stream.
	answers []string
	// list is a value of the type of the elements where a streamed answer can
	// be a JSON list too.
	list any
	// one is a value of the type of the answer to those who ask for no stream.
	one any
}

// register adds an operation: to the mux under both of its paths, to the list
// of routes, and to the OpenAPI description.
func register[I, O any](a *API, rt route, handle func(context.Context, *I) (*O, error)) {
	op := huma.Operation{
		OperationID: rt.id, Method: rt.method, Path: version + rt.path, DefaultStatus: rt.status,
		Summary: rt.summary, Description: rt.detail, Tags: []string{rt.tag},
		Middlewares:                  huma.Middlewares{a.admission(rt)},
		Responses:                    map[string]*huma.Response{"default": a.problemResponse()},
		RejectUnknownQueryParameters: true,
	}
	if rt.action != public {
		op.Security = []map[string][]string{{"bearer": {}}, {"key": {}}}
		op.Extensions = map[string]any{"x-permission": string(rt.action)}
	}
	if len(rt.answers) > 0 {
		op.Responses["200"] = a.streamed(rt)
	}
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			guard.NoteError(ctx, err)
			return nil, problem.From(err)
		}
		return out, nil
	})
	if rt.body != nil {
		a.describeBody(op.Path, rt)
	}
	for _, p := range paths(op.Path) {
		a.routes = append(a.routes, Route{Method: rt.method, Path: p, Action: rt.action})
	}
}

// describeBody tells OpenAPI what a body looks like. The body is read by bind
// and not by huma, whose reader knows nothing of duplicate keys, and which
// insists on a content type.
func (a *API) describeBody(path string, rt route) {
	api := a.huma.OpenAPI()
	schema := api.Components.Schemas.Schema(reflect.TypeOf(rt.body), true, rt.id+"Request")
	op := api.Paths[path].Post
	if rt.method == http.MethodPatch {
		op = api.Paths[path].Patch
	}
	op.RequestBody = &huma.RequestBody{
		Required: !rt.optional,
		Content:  map[string]*huma.MediaType{"application/json": {Schema: schema, Example: rt.example}},
	}
}

func (a *API) problemResponse() *huma.Response {
	schema := a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[problem.Problem](), true, "Problem")
	return &huma.Response{
		Description: "What went wrong, and what to do about it.",
		Content:     map[string]*huma.MediaType{problem.ContentType: {Schema: schema}},
	}
}

func (a *API) streamed(rt route) *huma.Response {
	content := map[string]*huma.MediaType{}
	for _, t := range rt.answers {
		content[t] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	}
	if rt.list != nil {
		schema := a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(rt.list), true, rt.id+"Item")
		content["application/json"] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeArray, Items: schema}}
	}
	if rt.one != nil {
		schema := a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(rt.one), true, rt.id+"Answer")
		content["application/json"] = &huma.MediaType{Schema: schema}
	}
	return &huma.Response{Description: "OK", Content: content}
}

// Exchange gives an operation its request and its answer, for bodies, streams
// and downloads. It is embedded in inputs.
type Exchange struct {
	r *http.Request
	w http.ResponseWriter
}

// Resolve fills it before the operation is called.
func (e *Exchange) Resolve(hc huma.Context) []error {
	e.r, e.w = humago.Unwrap(hc)
	return nil
}

// JobPath is the input of an operation on one job.
type JobPath struct {
	Exchange
	ID string `path:"id" doc:"The id of the job." format:"uuid"`
}

// newHuma makes the part that describes operations, reads parameters and
// writes answers. Its own pages, which load scripts from elsewhere, are off.
func newHuma(mux *ways) huma.API {
	cfg := huma.DefaultConfig("Aurea", "1")
	cfg.OpenAPIPath, cfg.DocsPath, cfg.SchemasPath = "", "", ""
	cfg.CreateHooks = nil
	cfg.Transformers = []huma.Transformer{ownProblem}
	cfg.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", func(t reflect.Type, hint string) string {
		return strings.TrimSuffix(huma.DefaultSchemaNamer(t, hint), "Body")
	})
	describe(cfg.OpenAPI)
	return humago.New(twoPaths{mux}, cfg)
}

// ownProblem gives the errors of huma's parameter checks our shape.
func ownProblem(_ huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := problem.New(m.Status, "invalid", m.Detail)
	for _, e := range m.Errors {
		p.Errors = append(p.Errors, problem.Field{Location: e.Location, Message: e.Message})
	}
	if len(p.Errors) > 0 {
		p.Detail = p.Errors[0].Location + ": " + p.Errors[0].Message
	}
	return p, nil
}

// twoPaths serves each operation under its documented path and, for the words
// in bare, without the version too.
type twoPaths struct{ *ways }

// HandleFunc registers a handler. The name of an artifact may have slashes,
// which OpenAPI has no way to say.
func (m twoPaths) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	method, path, _ := strings.Cut(pattern, " ")
	for _, p := range paths(path) {
		if strings.HasSuffix(p, "/{name}") {
			p = strings.TrimSuffix(p, "{name}") + "{name...}"
		}
		m.ways.HandleFunc(method+" "+p, h)
	}
}

// paths returns the paths under which a documented path is served.
func paths(documented string) []string {
	rest := strings.TrimPrefix(documented, version)
	word, _, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	if slices.Contains(bare(), word) {
		return []string{documented, rest}
	}
	return []string{documented}
}
