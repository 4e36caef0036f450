package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/httpapi/guard"
	"github.com/aurea-dev/aurea/internal/httpapi/problem"
	"github.com/aurea-dev/aurea/internal/policy"
	"github.com/aurea-dev/aurea/internal/sandbox"
)

const (
	// portPath is where a port of a sandbox is reached below the other routes.
	portPath = version + "/sandboxes/{sandbox}/ports/{port}/"
	// linkParameter carries a link's token in a URL, linkCookie afterwards.
	linkParameter = "aurea_token"
	linkCookie    = "aurea_port"
	maxLinkTTL    = 24 * time.Hour
	// maxLinkCookies is how many of the cookies of that name are tried.
	maxLinkCookies = 8
)

// LinkBody asks for a link to a port.
type LinkBody struct {
	TTL *float64 `json:"ttl,omitempty" minimum:"1" maximum:"86400" doc:"Seconds that it is good for; 3600 where it is left out."`
}

// PortLinkBody is a link to a port of a sandbox.
type PortLinkBody struct {
	URL       string    `json:"url" doc:"Below the path of this server. A page in it gets an origin of its own and no cookies; use host_url for pages."`
	HostURL   string    `json:"host_url" doc:"Under a host name of its own, which must lead to this server."`
	Token     string    `json:"token" doc:"Good for this port of this sandbox alone, as the parameter aurea_token or as Authorization: Bearer."`
	ExpiresAt time.Time `json:"expires_at"`
}

type portInput struct {
	SandboxPath
	Port int `path:"port" minimum:"1" maximum:"65535" doc:"The port, at the sandbox's own loopback."`
}

type linkOutput struct{ Body PortLinkBody }

func (a *API) registerPorts() {
	register(a, route{
		method: http.MethodPost, path: "/sandboxes/{sandbox}/ports/{port}/links", action: policy.Control, id: "linkPort", tag: "ports", status: http.StatusCreated,
		summary: "Make a link to a port of a sandbox", body: LinkBody{}, optional: true,
		detail: "Who has it reaches this port until it expires, or the sandbox ends or is moved to another project, and nothing else. The sandbox gets no network by it: bytes are carried in from outside.",
	}, a.linkPort)
	a.routes = append(a.routes, Route{Method: "*", Path: portPath, Action: policy.Control})
	a.mux.HandleFunc(portPath, a.servePath)
	a.huma.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "reachPort", Method: http.MethodGet, Path: portPath, Summary: "Reach a port of a sandbox", Tags: []string{"ports"},
		Description: "Every method, WebSockets and streams too: the request goes to the port, without our keys. The same is at http://PORT-SANDBOX.HOST/, where pages have an origin of their own. 502 with port_closed when nobody listens.",
		Parameters: []*huma.Param{
			{Name: "sandbox", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}}, {Name: "port", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeInteger}},
		},
		Responses: map[string]*huma.Response{"default": a.problemResponse()},
		Security:  []map[string][]string{{"bearer": {}}, {"key": {}}}, Extensions: map[string]any{"x-permission": string(policy.Control)},
	})
}

func (a *API) linkPort(ctx context.Context, in *portInput) (*linkOutput, error) {
	var body LinkBody
	if err := in.maybeInto(&body); err != nil {
		return nil, err
	}
	ttl := time.Hour
	if body.TTL != nil {
		d, err := seconds("ttl", body.TTL)
		if err != nil {
			return nil, err
		}
		ttl = *d
	}
	if ttl < time.Second || ttl > maxLinkTTL {
		return nil, fault.Field("ttl", "must be from 1 second to 24 hours")
	}
	port, err := parsePort(strconv.Itoa(in.Port))
	if err != nil {
		return nil, err
	}
	until := a.cfg.Now().Add(ttl).Truncate(time.Second)
	token, err := a.cfg.Keeper.LinkSandbox(ctx, in.ID, port, until)
	if err != nil {
		return nil, err
	}
	scheme := "http"
	if in.r.TLS != nil {
		scheme = "https"
	}
	return &linkOutput{Body: PortLinkBody{
		URL:     fmt.Sprintf("%s://%s%s/sandboxes/%s/ports/%d/?%s=%s", scheme, in.r.Host, version, in.ID, port, linkParameter, token),
		HostURL: fmt.Sprintf("%s://%d-%s.%s/?%s=%s", scheme, port, in.ID, nameable(in.r.Host), linkParameter, token),
		Token:   token, ExpiresAt: until.UTC(),
	}}, nil
}

// nameable is a host below which there can be names.
func nameable(host string) string {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = host, ""
	}
	if ip := net.ParseIP(strings.Trim(name, "[]")); ip != nil && ip.IsLoopback() {
		name = "localhost"
	}
	if port == "" {
		return name
	}
	return net.JoinHostPort(name, port)
}

func parsePort(text string) (uint16, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return 0, fault.New(fault.NotFound, "%q is not a port.", clip(text, 20)).WithCode("no_such_port")
	}
	return uint16(port), nil
}

// servePath reaches a port below our own paths. What comes from there is
// hostile and must not have our origin: browsers give it one of its own.
func (a *API) servePath(w http.ResponseWriter, r *http.Request) {
	port, err := parsePort(r.PathValue("port"))
	if err == nil {
		err = checkSandboxID(r.PathValue("sandbox"))
	}
	if err != nil {
		if _, no := a.admit(w, r, policy.Control); no != nil {
			err = no // who may not come in learns nothing else
		}
		a.refuse(w, r, err)
		return
	}
	prefix := fmt.Sprintf("%s/sandboxes/%s/ports/%d", version, r.PathValue("sandbox"), port)
	a.reach(w, r, visit{sandbox: r.PathValue("sandbox"), port: port, prefix: prefix}) //nolint:contextcheck // the request brings its own
}

// aside answers for the host names of ports, PORT-SANDBOX.HOST; nil where a
// name is none of them.
func (a *API) aside(host string) http.Handler {
	label, base, ok := strings.Cut(host, ".")
	number, id, dash := strings.Cut(label, "-")
	if !ok || !dash || checkSandboxID(id) != nil {
		return nil
	}
	port, err := parsePort(number)
	if err != nil || !a.ours(base) {
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.reach(w, r, visit{sandbox: id, port: port}) //nolint:contextcheck // the request brings its own
	})
}

// ours reports whether names below this one lead to us on purpose.
func (a *API) ours(base string) bool {
	if base == "localhost" {
		return true
	}
	if len(a.cfg.Hosts) == 0 {
		return !a.cfg.Loopback
	}
	for _, h := range a.cfg.Hosts {
		if strings.EqualFold(h, base) {
			return true
		}
	}
	return false
}

// visit is a request for a port.
type visit struct {
	sandbox string
	port    uint16
	prefix  string // of our path before the port's own; "" under a host name
}

// reach carries a request to a port and the answer back.
func (a *API) reach(w http.ResponseWriter, r *http.Request, v visit) {
	ctx, ambient, err := a.visitor(w, r, v)
	if errors.Is(err, errRedirected) {
		return
	}
	if err == nil && ambient && !a.fromOwnPage(r) {
		err = problem.New(http.StatusForbidden, "foreign_origin",
			"A page of another origin sent this. It may look and follow links; to change something or open a WebSocket it needs a link's token in the URL.")
	}
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	leave, err := a.streams.enter(ctx)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	defer leave()
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})  // a WebSocket lasts
	_ = control.SetWriteDeadline(time.Time{}) // so does a stream
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(p *httputil.ProxyRequest) { v.rewrite(p) },
		ModifyResponse: func(res *http.Response) error { v.answer(w.Header(), res); return nil },
		FlushInterval:  -1,
		Transport:      a.portTransport(ctx, v),
		ErrorLog:       slog.NewLogLogger(a.cfg.Logger.Handler(), slog.LevelDebug), // a port that breaks off is its own affair
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			a.refuse(w, r, v.failed(err))
		},
	}
	proxy.ServeHTTP(w, r.WithContext(ctx)) //nolint:contextcheck // the caller is put into the request's own context
}

// failed is what a visitor reads of a port that did not answer. Where nobody
// listens we are well and the port is not: that is 502, as proxies have it.
func (v *visit) failed(err error) error {
	var f *fault.Error
	switch {
	case !errors.As(err, &f):
		return fault.New(fault.Unavailable, "The port %d of sandbox %s did not answer: %w", v.port, v.sandbox, err).WithCode("port_failed")
	case f.Code == sandbox.CodePortClosed:
		return problem.New(http.StatusBadGateway, f.Code, f.Error())
	}
	return err
}

// portTransport speaks to one port, by a connection for each request.
func (a *API) portTransport(visitor context.Context, v visit) http.RoundTripper {
	const headers = 5 * time.Minute
	caller, _ := policy.From(visitor)
	return unhinted{&http.Transport{
		DisableKeepAlives: true, DisableCompression: true, ResponseHeaderTimeout: headers, MaxResponseHeaderBytes: 1 << 20,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return a.cfg.Keeper.DialSandbox(policy.With(ctx, caller), v.sandbox, v.port)
		},
	}}
}

// unhinted keeps answers before the answer (1xx) from being handed on. The proxy
// asks for them by its context, and then there is no bound on how many a port
// may send; without it the transport has one.
type unhinted struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (u unhinted) RoundTrip(r *http.Request) (*http.Response, error) {
	return u.RoundTripper.RoundTrip(r.WithContext(valueless{r.Context()})) //nolint:contextcheck // it ends with the request's own
}

// valueless is a context that ends with another and knows nothing of it.
type valueless struct{ context.Context }

// Value implements context.Context.
func (valueless) Value(any) any { return nil }

var errRedirected = errors.New("sent on without the token")

// fromOwnPage reports whether a browser let a page of the same origin send a
// request, or no browser did. A browser adds by itself what lets its user in, so
// that the page of one sandbox could act on another, or any page on all where no
// key is asked for. Other pages may look: what they see is not theirs to read.
func (a *API) fromOwnPage(r *http.Request) bool {
	if isUpgrade(r) {
		return a.trusts(r)
	}
	return http.NewCrossOriginProtection().Check(r) == nil
}

// linkOf is the token of a visitor that opens the port, and whether it came by
// itself. A page below our name may have set cookies of the same name for all of
// it, so the good one need not be the first.
func linkOf(r *http.Request, opens func(token string) bool) (token string, ambient bool) {
	if token = r.URL.Query().Get(linkParameter); token != "" && opens(token) {
		return token, false
	}
	if token = secretOf(r); token != "" && opens(token) {
		return token, false
	}
	for i, c := range r.CookiesNamed(linkCookie) {
		if i < maxLinkCookies && opens(c.Value) {
			return c.Value, true
		}
	}
	return "", false
}

// visitor says who visits: somebody with a key, or with a link. A token in the
// URL is turned into a cookie, so that it does not stay in the address bar.
// ambient says that a browser would have said the same for any page.
func (a *API) visitor(w http.ResponseWriter, r *http.Request, v visit) (ctx context.Context, ambient bool, err error) {
	query := r.URL.Query()
	if !query.Has(linkParameter) && secretOf(r) == "" && len(r.CookiesNamed(linkCookie)) == 0 {
		ctx, err = a.admit(w, r, policy.Control)
		return ctx, true, err
	}
	s, err := a.cfg.Keeper.Sandbox(policy.With(r.Context(), policy.System()), v.sandbox)
	token := ""
	if err == nil {
		token, ambient = linkOf(r, func(token string) bool { return s.CheckLink(v.port, token, a.cfg.Now()) == nil })
	}
	if token == "" {
		ctx, err := a.admit(w, r, policy.Control)
		if err != nil && secretOf(r) == "" {
			err = fault.New(fault.Unauthenticated, "This link is not good, or not any more; ask for another.").WithCode("bad_link")
		}
		return ctx, !a.cfg.Keys || secretOf(r) == "", err
	}
	if query.Get(linkParameter) == token && (r.Method == http.MethodGet || r.Method == http.MethodHead) && !isUpgrade(r) && strings.Contains(r.Header.Get("Accept"), "text/html") {
		query.Del(linkParameter)
		http.SetCookie(w, &http.Cookie{Name: linkCookie, Value: token, Path: v.prefix + "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteLaxMode})
		to := url.URL{Path: r.URL.Path, RawQuery: query.Encode()}
		http.Redirect(w, r, to.String(), http.StatusSeeOther)
		return nil, false, errRedirected
	}
	guard.NoteCaller(r.Context(), "link")
	return policy.With(r.Context(), policy.Caller{Kind: policy.Viewer, ID: s.Owner}), ambient, nil
}

// rewrite makes the request one to the port: nothing of ours goes along.
func (v *visit) rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme = "http"
	p.Out.URL.Host = "127.0.0.1:" + strconv.Itoa(int(v.port))
	p.Out.Host = p.Out.URL.Host
	if v.prefix == "" {
		p.Out.Host = p.In.Host
	}
	p.Out.URL.Path = strings.TrimPrefix(p.In.URL.Path, v.prefix)
	p.Out.URL.RawPath = strings.TrimPrefix(p.In.URL.RawPath, v.prefix)
	query := p.In.URL.Query()
	if query.Has(linkParameter) {
		query.Del(linkParameter)
		p.Out.URL.RawQuery = query.Encode()
	}
	for _, name := range []string{"Authorization", "X-Api-Key", directorHeader} {
		p.Out.Header.Del(name)
	}
	p.Out.Header.Del("Cookie")
	for _, c := range p.In.Cookies() {
		if c.Name != linkCookie {
			p.Out.AddCookie(c)
		}
	}
	p.SetXForwarded()
	if v.prefix != "" {
		p.Out.Header.Set("X-Forwarded-Prefix", v.prefix)
	}
}

// answer makes what comes from the port harmless for our own pages.
func (v *visit) answer(ours http.Header, res *http.Response) {
	for name := range ours { // a page of the sandbox is not under our rules
		if name != "X-Request-Id" {
			ours.Del(name)
		}
	}
	cookies := res.Cookies()
	res.Header.Del("Set-Cookie")
	for _, c := range cookies {
		if c.Name == linkCookie {
			continue
		}
		c.Domain = ""
		if v.prefix != "" {
			c.Path = v.prefix + "/"
		}
		if text := c.String(); text != "" {
			res.Header.Add("Set-Cookie", text)
		}
	}
	res.Header.Del("Service-Worker-Allowed")
	res.Header.Set("X-Content-Type-Options", "nosniff")
	if v.prefix == "" {
		return
	}
	res.Header.Add("Content-Security-Policy", "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads")
	res.Header.Set("Cross-Origin-Resource-Policy", "same-origin")
	if to := res.Header.Get("Location"); strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") {
		res.Header.Set("Location", v.prefix+to)
	}
}
