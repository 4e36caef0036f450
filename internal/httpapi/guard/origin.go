package guard

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/aurea-dev/aurea/internal/httpapi/problem"
)

// sameOrigin refuses requests that change something and that a browser says
// come from another site's page.
func sameOrigin(trusted []string) (*http.CrossOriginProtection, error) {
	c := http.NewCrossOriginProtection()
	for _, o := range trusted {
		if err := c.AddTrustedOrigin(o); err != nil {
			return nil, fmt.Errorf("trust origin %q: %w", o, err)
		}
	}
	c.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		problem.New(http.StatusForbidden, "foreign_origin",
			"A page of another site sent this request. Pages may change things only on their own site; call from outside a browser, or add the origin to the trusted ones.").Write(w)
	}))
	return c, nil
}

// checkHost refuses requests that were sent to a name which is not ours.
func checkHost(next http.Handler, cfg Config) http.Handler {
	if !cfg.Loopback && len(cfg.Hosts) == 0 {
		return next
	}
	names := make([]string, 0, len(cfg.Hosts))
	for _, h := range cfg.Hosts {
		names = append(names, bareHost(h))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := bareHost(r.Host)
		if !slices.Contains(names, host) && !isLoopback(host) {
			problem.New(http.StatusMisdirectedRequest, "unknown_host",
				"This server does not answer to the host that the request names. Use localhost or 127.0.0.1, or add the name to the server's hosts.").Write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bareHost returns a Host without its port, in the form in which hosts are
// compared.
func bareHost(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}

// aside hands requests for other host names on.
func aside(next http.Handler, find func(host string) http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := find(bareHost(r.Host)); h != nil {
			h.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
