package guard

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

// FuzzHost looks for names that pass for loopback and are not.
func FuzzHost(f *testing.F) {
	for _, s := range []string{"localhost", "LOCALHOST.:80", "127.0.0.1:8000", "[::1]:80", "[::1]", "::1", "127.1", "0x7f.1", "localhost.evil", "[[::1]]", "a:b:c", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, host string) {
		bare := bareHost(host)
		if !isLoopback(bare) {
			return
		}
		name := host
		if h, _, err := net.SplitHostPort(host); err == nil {
			name = h
		}
		name = strings.TrimSuffix(strings.Trim(name, "[]"), ".")
		if strings.EqualFold(name, "localhost") {
			return
		}
		if ip, err := netip.ParseAddr(name); err != nil || !ip.Unmap().IsLoopback() {
			t.Fatalf("%q passes for loopback", host)
		}
	})
}
