// Package webhook calls addresses of others: which they may be, how a call is
// signed so that its receiver knows who made it, and when one that failed is made
// again. What is told, and to whom, its users decide; they keep what is to be
// called.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Terms is what webhooks may do.
type Terms struct {
	// Secret is what they are signed with; without one there are none.
	Secret []byte
	// Private lets them go to addresses of this machine and of private
	// networks, and without TLS.
	Private bool
}

// Bounds of a webhook. A try that fails is made again after twice as long.
const (
	Tries = 12 // before one is given up
	// CallTime is how long a call may take that nobody waits for.
	CallTime = 10 * time.Second
	Batch    = 16 // that are called together

	maxURL   = 2000
	first    = 5 * time.Second
	longest  = time.Hour
	maxReply = 64 << 10
)

// Again is how long to wait after so many tries that failed.
func Again(tries int) time.Duration { return min(first<<min(max(tries-1, 0), 20), longest) }

// Check refuses an address that no webhook may go to, which was given as a field.
// What its name stands for is looked at when it is called.
func (t Terms) Check(field, address string) error {
	bad := func(format string, args ...any) error {
		return fault.Field(field, format, args...).WithCode("bad_webhook")
	}
	if len(t.Secret) == 0 {
		return bad("this server has no secret to sign with; its operator sets AUREA_WEBHOOK_SECRET_FILE")
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || len(address) > maxURL || u.Hostname() == "" || u.Opaque != "":
		return bad("is not a URL such as https://example.org/hook")
	case u.Scheme != "https" && (u.Scheme != "http" || !t.Private):
		return bad("must begin with https://")
	case u.User != nil || u.Fragment != "":
		return bad("must have no user and no fragment")
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && !t.allowed(ip) {
		return bad("%s is an address of a private network or of this machine", ip)
	}
	return nil
}

// allowed reports whether a webhook may go to an address.
func (t Terms) allowed(ip netip.Addr) bool {
	ip = ip.Unmap()
	if !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast() {
		return false
	}
	if t.Private {
		return true
	}
	if ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast() || ip.IsInterfaceLocalMulticast() || ip.Zone() != "" {
		return false
	}
	for _, block := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "fec0::/10",
	} {
		if netip.MustParsePrefix(block).Contains(ip) {
			return false
		}
	}
	return true
}

var errPrivate = errors.New("the name stands for an address of a private network or of this machine")

// Client calls webhooks. Each address is looked at when the connection to it is
// about to be made, so that a name cannot stand for another by then; nothing is
// asked of a proxy, and no redirect is followed. No call takes longer than most.
func (t Terms) Client(most time.Duration) *http.Client {
	dialer := &net.Dialer{Timeout: min(most, CallTime), Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || !t.allowed(to.Addr()) {
			return errPrivate
		}
		return nil
	}}
	return &http.Client{
		Timeout:       most,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dialer.DialContext, DisableKeepAlives: true, TLSHandshakeTimeout: min(most, CallTime), ResponseHeaderTimeout: most, MaxResponseHeaderBytes: maxReply,
		},
	}
}

// Sign is the signature of a webhook: of the time, a dot and the body.
func Sign(secret []byte, at string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write([]byte(at + ".")) // a hash never fails
	_, _ = mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// Call is one call of a webhook.
type Call struct {
	URL string
	// Event is what it tells of, Delivery by which its receiver knows it again.
	Event, Delivery string
	Body            []byte // JSON
}

// Post makes a call at a time, and returns what its receiver says, bounded. An
// answer other than 2xx is an error.
func (t Terms) Post(ctx context.Context, client *http.Client, c Call, now time.Time) (reply []byte, err error) {
	if err := t.Check("webhook", c.URL); err != nil { // the settings may have changed
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(c.Body))
	if err != nil {
		return nil, fmt.Errorf("call a webhook: %w", err)
	}
	at := strconv.FormatInt(now.Unix(), 10)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "Aurea-Webhook/1", "X-Aurea-Event": c.Event, "X-Aurea-Delivery": c.Delivery,
		"X-Aurea-Timestamp": at, "X-Aurea-Signature": Sign(t.Secret, at, c.Body),
	} {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, quiet(err)
	}
	defer func() { _ = resp.Body.Close() }()
	reply, _ = io.ReadAll(io.LimitReader(resp.Body, maxReply)) // who cut it off was called all the same
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("it answers %d", resp.StatusCode)
	}
	return reply, nil
}

// quiet is an error without the address, in which there may be a secret.
func quiet(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
