package client

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// PortLink is a link to a port of a sandbox. Who has it reaches that port until
// it expires, and nothing else.
type PortLink struct {
	URL       string    `json:"url"`      // below the path of the server
	HostURL   string    `json:"host_url"` // under a host name of its own: for pages
	Token     string    `json:"token"`    // as the parameter aurea_token, or as a bearer
	ExpiresAt time.Time `json:"expires_at"`
}

// LinkPort makes a link to a port of a sandbox; ttl 0 is the server's.
func (c *Client) LinkPort(ctx context.Context, sandbox string, port uint16, ttl time.Duration) (PortLink, error) {
	body := map[string]float64{}
	if ttl > 0 {
		body["ttl"] = ttl.Seconds()
	}
	var out PortLink
	r, err := post(body, sandboxes(sandbox, "ports", strconv.Itoa(int(port)), "links")...)
	if err == nil {
		_, err = c.call(ctx, r, &out)
	}
	return out, err
}

// PortTransport makes HTTP requests to a port of a sandbox: whatever the host of
// a request, it goes to that port, with the key of this client. It is what an
// http.Client, or a reverse proxy, takes.
func (c *Client) PortTransport(sandbox string, port uint16) http.RoundTripper {
	return portTransport{client: c, path: sandboxes(sandbox, "ports", strconv.Itoa(int(port)))}
}

type portTransport struct {
	client *Client
	path   []string
}

// RoundTrip implements http.RoundTripper. It leaves the request as it is.
func (t portTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if slices.Contains(strings.Split(r.URL.Path, "/"), "..") {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, fmt.Errorf("the path %q leads out of the port", r.URL.Path) // with the key of this client
	}
	u := *t.client.base
	prefix := u.EscapedPath() + "/" + strings.Join(t.path, "/")
	u.Path += "/" + strings.Join(t.path, "/") + "/" + strings.TrimPrefix(r.URL.Path, "/")
	u.RawPath = prefix + "/" + strings.TrimPrefix(r.URL.EscapedPath(), "/")
	u.RawQuery = r.URL.RawQuery
	to := r.Clone(r.Context())
	to.URL, to.Host = &u, ""
	if t.client.key != "" {
		to.Header.Set("Authorization", "Bearer "+t.client.key)
	}
	if t.client.http.Transport == nil {
		return http.DefaultTransport.RoundTrip(to)
	}
	return t.client.http.Transport.RoundTrip(to)
}
