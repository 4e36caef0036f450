package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aurea-dev/aurea/internal/dispatch"
	"github.com/aurea-dev/aurea/internal/fault"
)

var _ dispatch.Manager = (*Client)(nil)

var errTimeout = errors.New("the manager did not answer in time")

// maxLeaseAnswer bounds the answer to a request for work: each lease carries a
// payload, and a worker that could not read one would ask for it for ever.
const maxLeaseAnswer = dispatch.MaxLeases * (8 << 20)

// Options are what a Client can be given besides the address and the key.
type Options struct {
	TLS *tls.Config  // for https; nil is the machine's own roots
	Log *slog.Logger // nil is silent
}

// Client is the worker's end of the wire: the manager as seen from afar.
//
// It retries nothing: every call can be repeated, and when is the worker's to
// say. Every error is a fault; a manager that cannot be reached, or does not
// answer in time, is Unavailable.
type Client struct {
	base    *url.URL
	key     string
	log     *slog.Logger
	http    *http.Client
	upgrade *http.Client // speaks HTTP/1.1 only, which alone can upgrade
}

// NewClient returns a client of the manager at baseURL (http or https). An
// empty key is sent to nobody, for a manager on loopback.
func NewClient(baseURL, key string, opts Options) (*Client, error) {
	base, err := url.Parse(baseURL)
	if err != nil {
		return nil, fault.Field("manager_url", "is not an address: %w", err)
	}
	switch {
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "":
		return nil, fault.Field("manager_url", "must look like http://host:port")
	case base.User != nil || base.RawQuery != "" || base.Fragment != "":
		return nil, fault.Field("manager_url", "must have no user, query or fragment")
	case strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c >= 0x7f }):
		return nil, fault.Field("key", "must be printable without spaces")
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	both, one := new(http.Protocols), new(http.Protocols)
	both.SetHTTP1(true)
	both.SetHTTP2(true)
	one.SetHTTP1(true)
	return &Client{
		base: base, key: key, log: opts.Log,
		http: client(opts, both), upgrade: client(opts, one),
	}, nil
}

func client(opts Options, protocols *http.Protocols) *http.Client {
	dialer := &net.Dialer{Timeout: dispatch.ReportTimeout}
	return &http.Client{
		// A redirect would carry the key to somewhere that nobody configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:           dialer.DialContext,
			TLSClientConfig:       opts.TLS.Clone(),
			TLSHandshakeTimeout:   dispatch.ReportTimeout,
			Protocols:             protocols,
			HTTP2:                 pings(),
			MaxIdleConnsPerHost:   64,
			IdleConnTimeout:       time.Minute,
			ExpectContinueTimeout: time.Second,
			DisableCompression:    true,
		},
	}
}

// Close drops the connections that no call uses. Streams end with the context
// of their Attend.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.upgrade.CloseIdleConnections()
}

// Register announces the worker.
func (c *Client) Register(ctx context.Context, r dispatch.Registration) (dispatch.Welcome, error) {
	var w dispatch.Welcome
	err := c.call(ctx, "register", r, &w, dispatch.MaxBodyBytes, 0)
	return w, err
}

// Lease asks for work.
func (c *Client) Lease(ctx context.Context, req dispatch.LeaseRequest) ([]dispatch.Lease, error) {
	var ls leases
	if err := c.call(ctx, "lease", req, &ls, maxLeaseAnswer, req.Wait); err != nil {
		return nil, err
	}
	if len(ls.Leases) > dispatch.MaxLeases {
		return nil, fault.New(fault.Internal, "the manager gave %d leases in one answer; at most %d were agreed on", len(ls.Leases), dispatch.MaxLeases)
	}
	return ls.unwrap(), nil
}

// Extend renews leases.
func (c *Client) Extend(ctx context.Context, req dispatch.ExtendRequest) (dispatch.ExtendAnswer, error) {
	var a dispatch.ExtendAnswer
	err := c.call(ctx, "extend", req, &a, dispatch.MaxBodyBytes, 0)
	return a, err
}

// Report hands over events and output.
func (c *Client) Report(ctx context.Context, req dispatch.ReportRequest) (dispatch.Refusals, error) {
	var r dispatch.Refusals
	err := c.call(ctx, "report", req, &r, dispatch.MaxBodyBytes, 0)
	return r, err
}

// Finish hands over results.
func (c *Client) Finish(ctx context.Context, req dispatch.FinishRequest) (dispatch.Refusals, error) {
	var r dispatch.Refusals
	err := c.call(ctx, "finish", req, &r, dispatch.MaxBodyBytes, 0)
	return r, err
}

// Tell says what has ended.
func (c *Client) Tell(ctx context.Context, req dispatch.TellRequest) error {
	return c.call(ctx, "tell", req, &nothing{}, dispatch.MaxBodyBytes, 0)
}

// Leave says goodbye.
func (c *Client) Leave(ctx context.Context, session string) error {
	return c.call(ctx, "leave", leave{Session: session}, &nothing{}, dispatch.MaxBodyBytes, 0)
}

// call posts one message and reads its answer. The manager may take wait
// longer than for an ordinary answer.
func (c *Client) call(ctx context.Context, name string, in checked, out any, limit int64, wait time.Duration) error {
	if err := in.Check(); err != nil {
		return err
	}
	body, err := encode(in)
	if err != nil {
		return err
	}
	if len(body) > dispatch.MaxBodyBytes {
		return tooLarge()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait+dispatch.ReportTimeout, errTimeout)
	defer cancel()
	req, err := c.request(ctx, http.MethodPost, prefix+name, nil, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", jsonType)
	resp, err := c.http.Do(req)
	if err != nil {
		return away(ctx, name, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return readProblem(resp)
	}
	return readAnswer(resp.Body, limit, out)
}

func (c *Client) request(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Request, error) {
	target := c.base.JoinPath(path)
	target.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, target.String(), body)
	if err != nil {
		return nil, fault.New(fault.Internal, "make the request: %w", err)
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	return req, nil
}

// away is the fault of a manager that could not be asked. The transport's
// error repeats the address, which holds the session; its cause says enough.
func away(ctx context.Context, what string, err error) error {
	var in *url.Error
	if errors.As(err, &in) {
		err = in.Err
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fault.New(fault.Unavailable, "%s: the manager cannot be reached: %w", what, err)
}
