// Package client talks to an Aurea manager over HTTP: it submits PRDs, looks
// at jobs, follows events and output, fetches evidence, and keeps sandboxes and
// the commands in them.
//
// It needs the standard library and nothing else, and may be imported by
// anybody. A Client is safe for use by several goroutines.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// DefaultServer is where a manager listens unless it was told otherwise.
const DefaultServer = "http://127.0.0.1:8000"

// Bounds of what is read from a server into memory.
const (
	maxAnswer  = 128 << 20 // the output of a run, with every byte escaped
	maxProblem = 1 << 20
)

// Options are what a Client can be given besides the address.
type Options struct {
	// Key is shown to the server; a server on loopback needs none.
	Key string
	// Director is the secret of a director, sent along with every request; "" is
	// none.
	Director string
	// HTTP makes the requests; nil is a client of our own. Its Timeout must be
	// 0, because streams last: bound calls by their context.
	HTTP *http.Client
}

// Client is a connection to a manager.
type Client struct {
	base     *url.URL
	key      string
	director string
	http     *http.Client
}

// New returns a client of the manager at server, such as
// "http://127.0.0.1:8000"; "" is DefaultServer.
func New(server string, opts Options) (*Client, error) {
	if server == "" {
		server = DefaultServer
	}
	base, err := url.Parse(strings.TrimRight(server, "/"))
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("server %q is not a URL such as %s", server, DefaultServer)
	}
	c := &Client{base: base, key: opts.Key, director: opts.Director, http: opts.HTTP}
	if c.http == nil {
		c.http = &http.Client{
			Transport: http.DefaultTransport.(*http.Transport).Clone(), //nolint:forcetypeassert // the standard library's own
			// A redirect would carry the key to somewhere that nobody named.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return c, nil
}

// Close gives back idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Server is the address of the manager.
func (c *Client) Server() string { return c.base.String() }

// Unreachable is the error of a request that got no answer.
type Unreachable struct {
	Server string
	Err    error
}

// Error says which server, and why.
func (u *Unreachable) Error() string {
	why := u.Err
	var ue *url.Error
	if errors.As(why, &ue) {
		why = ue.Err // the address is named already
	}
	return fmt.Sprintf("cannot reach %s: %v", u.Server, why)
}

// Unwrap returns the cause.
func (u *Unreachable) Unwrap() error { return u.Err }

// Problem is an error that the server answered with, in the shape of RFC 9457.
type Problem struct {
	Type   string  `json:"type"`
	Title  string  `json:"title"`
	Status int     `json:"status"`
	Detail string  `json:"detail"`
	Code   string  `json:"code"`
	Hint   string  `json:"hint,omitempty"`
	Errors []Field `json:"errors,omitempty"`
}

// Field is one input that was wrong.
type Field struct {
	Location string `json:"location"`
	Message  string `json:"message"`
}

// Error returns the detail, or what there is.
func (p *Problem) Error() string {
	switch {
	case p.Detail != "":
		return p.Detail
	case p.Title != "":
		return p.Title
	}
	return "the server answered with status " + strconv.Itoa(p.Status)
}

// request is one call.
type request struct {
	method string
	path   []string
	query  url.Values
	body   []byte
	// stream is sent in place of body, once: a request with one is not repeated.
	stream  io.Reader
	content string // the type of body or stream; JSON where it is left out
	accept  string
	header  http.Header
}

// send makes the request. The answer's body is the caller's to close; a
// status of 400 and above is a *Problem.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	u := *c.base
	for _, part := range r.path { // url.JoinPath would clean dots out of a name
		u.RawPath = u.EscapedPath() + "/" + url.PathEscape(part)
		u.Path += "/" + part
	}
	u.RawQuery = r.query.Encode()
	var body io.Reader = bytes.NewReader(r.body)
	if r.stream != nil {
		body = r.stream
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for k, v := range r.header {
		req.Header[k] = v
	}
	switch {
	case r.content != "":
		req.Header.Set("Content-Type", r.content)
	case r.body != nil:
		req.Header.Set("Content-Type", "application/json")
	}
	if r.accept == "" {
		r.accept = "application/json"
	}
	req.Header.Set("Accept", r.accept)
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if c.director != "" {
		req.Header.Set("X-Director-Key", c.director)
	}
	res, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, &Unreachable{Server: c.Server(), Err: err}
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		defer func() { _ = res.Body.Close() }()
		return nil, readProblem(res)
	}
	return res, nil
}

// readProblem makes the best of whatever stands between us and the server.
func readProblem(res *http.Response) *Problem {
	p := &Problem{}
	raw, _ := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if !strings.HasSuffix(kind, "json") || json.Unmarshal(raw, p) != nil {
		p = &Problem{}
	}
	p.Status = res.StatusCode
	if p.Title == "" {
		p.Title = http.StatusText(res.StatusCode)
	}
	if p.Detail == "" {
		p.Detail = fmt.Sprintf("the server answered %d %s", res.StatusCode, http.StatusText(res.StatusCode))
	}
	return p
}

// call makes the request and reads a JSON answer into out, which may be nil.
func (c *Client) call(ctx context.Context, r request, out any) (http.Header, error) {
	res, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, &Unreachable{Server: c.Server(), Err: err}
	case len(raw) > maxAnswer:
		return nil, fmt.Errorf("the answer of %s is larger than %d bytes", c.Server(), maxAnswer)
	case out == nil:
		return res.Header, nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", c.Server(), err)
	}
	return res.Header, nil
}

// stream returns the bytes of an answer.
func (c *Client) stream(ctx context.Context, r request) (io.ReadCloser, error) {
	res, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

func get(path ...string) request { return request{method: http.MethodGet, path: path} }

func post(body any, path ...string) (request, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return request{}, fmt.Errorf("write request: %w", err)
	}
	return request{method: http.MethodPost, path: path, body: raw}, nil
}
