package runner

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/run"
	"github.com/aurea-dev/aurea/internal/store"
)

// HookTerms is what webhooks may do.
type HookTerms struct {
	// Secret is what they are signed with; without one there are none.
	Secret []byte
	// Private lets them go to addresses of this machine and of private
	// networks, and without TLS.
	Private bool
}

// Bounds of a webhook. A try that fails is made again after twice as long.
const (
	maxHookURL   = 2000
	hookTime     = 10 * time.Second
	hookFirst    = 5 * time.Second
	hookLongest  = time.Hour
	hookTries    = 12
	hookBatch    = 16
	maxHookReply = 64 << 10
)

// Check refuses an address that no webhook may go to. What its name stands for
// is looked at when it is called.
func (t HookTerms) Check(address string) error {
	bad := func(format string, args ...any) error {
		return fault.Field("webhook", format, args...).WithCode("bad_webhook")
	}
	if len(t.Secret) == 0 {
		return bad("this server has no secret to sign with; its operator sets AUREA_WEBHOOK_SECRET_FILE")
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || len(address) > maxHookURL || u.Hostname() == "" || u.Opaque != "":
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
func (t HookTerms) allowed(ip netip.Addr) bool {
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

// client calls webhooks. Each address is looked at when the connection to it is
// about to be made, so that a name cannot stand for another by then; nothing is
// asked of a proxy, and no redirect is followed.
func (t HookTerms) client() *http.Client {
	dialer := &net.Dialer{Timeout: hookTime, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || !t.allowed(to.Addr()) {
			return errPrivate
		}
		return nil
	}}
	return &http.Client{
		Timeout:       hookTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dialer.DialContext, DisableKeepAlives: true, TLSHandshakeTimeout: hookTime, ResponseHeaderTimeout: hookTime, MaxResponseHeaderBytes: maxHookReply,
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

// deliver calls webhooks that are due while this manager leads, until ctx ends.
func (r *Runner) deliver(ctx context.Context) {
	tick := time.NewTicker(rhythm)
	defer tick.Stop()
	caller := r.Hooks.client()
	for {
		ended := r.arrived.Wait()
		for full := r.Fence() != 0; full && ctx.Err() == nil; {
			full = r.deliverDue(ctx, caller)
		}
		select {
		case <-ctx.Done():
			return
		case <-ended:
		case <-tick.C:
		}
	}
}

// deliverDue calls some webhooks together, and reports whether there may be
// more.
func (r *Runner) deliverDue(ctx context.Context, caller *http.Client) bool {
	var due []store.Hook
	err := r.Store.View(ctx, func(tx store.Tx) (err error) {
		due, err = tx.Hooks().Due(ctx, r.Now(), hookBatch)
		return err
	})
	if err != nil {
		return false
	}
	var calls sync.WaitGroup
	for _, h := range due {
		calls.Go(func() {
			if err := r.call(ctx, caller, h); err != nil && ctx.Err() == nil {
				r.Logger.Warn("could not settle a webhook; it is called again", "run", h.RunID, "error", err)
			}
		})
	}
	calls.Wait()
	return err == nil && len(due) == hookBatch
}

// call calls one webhook and writes down what comes of it. A crash between the
// two has it called again: its receiver knows it by the id of the run.
func (r *Runner) call(ctx context.Context, caller *http.Client, h store.Hook) error {
	var x run.Run
	err := r.Store.View(ctx, func(tx store.Tx) (err error) {
		x, err = tx.Runs().Get(ctx, h.RunID)
		return err
	})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	done := err != nil
	if !done {
		err := r.post(ctx, caller, h, &x)
		if ctx.Err() != nil {
			return err
		}
		h.Tries++
		if done = err == nil; err != nil && h.Tries >= hookTries {
			r.Logger.Warn("a webhook was called in vain for the last time", "run", h.RunID, "tries", h.Tries, "error", err)
			done = true
		}
	}
	h.NextAt = r.Now().Add(min(hookFirst<<min(h.Tries-1, 20), hookLongest))
	return r.Store.Update(ctx, func(tx store.Tx) error {
		if err := tx.Leaders().Check(ctx, r.Fence()); err != nil {
			return err
		}
		if done {
			return tx.Hooks().Drop(ctx, h.RunID)
		}
		return tx.Hooks().Put(ctx, h)
	})
}

// ended is what a webhook is told. What the program said is for those to ask
// who may.
type ended struct {
	Type       string    `json:"type"`
	RunID      string    `json:"run_id"`
	Status     run.State `json:"status"`
	Verdict    string    `json:"verdict,omitempty"`
	ExitCode   *int      `json:"exit_code,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Language   string    `json:"language"`
	CodeSHA256 string    `json:"code_sha256"`
	CreatedAt  time.Time `json:"created_at"`
	EndedAt    time.Time `json:"ended_at"`
}

func (r *Runner) post(ctx context.Context, caller *http.Client, h store.Hook, x *run.Run) error {
	if err := r.Hooks.Check(h.URL); err != nil { // the settings may have changed
		return err
	}
	told := ended{
		Type: "run.ended", RunID: x.ID, Status: x.State, Verdict: string(x.Verdict), Reason: x.Reason, Language: x.Language, CodeSHA256: x.CodeSHA256,
		CreatedAt: x.CreatedAt, EndedAt: x.EndedAt,
	}
	if x.Result != nil {
		told.ExitCode = &x.Result.ExitCode
	}
	body, err := json.Marshal(told)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	at := strconv.FormatInt(r.Now().Unix(), 10)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "Aurea-Webhook/1", "X-Aurea-Event": told.Type, "X-Aurea-Delivery": x.ID,
		"X-Aurea-Timestamp": at, "X-Aurea-Signature": Sign(r.Hooks.Secret, at, body),
	} {
		req.Header.Set(name, value)
	}
	resp, err := caller.Do(req)
	if err != nil {
		var about *url.Error
		if errors.As(err, &about) { // addresses of webhooks often hold a secret
			err = about.Err
		}
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, maxHookReply) // what it says is of no matter
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("it answers %d", resp.StatusCode)
	}
	return nil
}
