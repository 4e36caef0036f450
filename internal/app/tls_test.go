package app

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/config"
)

// writeCertificate puts a certificate of a name into place, as those who renew
// them do: a new file over the old.
func writeCertificate(t *testing.T, cfg *config.Config, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cfg.Access.TLSCert: {Type: "CERTIFICATE", Bytes: der}, cfg.Access.TLSKey: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path+".new", pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCertificateIsReadAgain swaps the certificate under a server: connections
// that are open go on, new ones see the new one, and a broken one changes
// nothing.
func TestCertificateIsReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := &config.Config{}
	cfg.Access.TLSCert, cfg.Access.TLSKey = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if _, err := loadCertificate(cfg, quiet); err == nil {
		t.Fatal("a certificate that is not there was read")
	}
	writeCertificate(t, cfg, "old.example")
	cert, err := loadCertificate(cfg, quiet)
	if err != nil {
		t.Fatal(err)
	}
	clock := make(chan time.Time, 1) // the time that the next connection sees
	now := time.Now()
	cert.now = func() time.Time {
		select {
		case now = <-clock:
		default:
		}
		return now
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.TLS != nil) }), quiet)
	served := make(chan error, 1)
	ln := cert.secure(inner)
	go func() { served <- server.Serve(ln) }()
	defer func() {
		_ = server.Close()
		<-served
	}()

	first := dialTLS(t, inner.Addr().String())
	first.want(t, "old.example")
	writeCertificate(t, cfg, "new.example")
	clock <- now.Add(time.Hour)
	second := dialTLS(t, inner.Addr().String())
	second.want(t, "new.example")
	first.want(t, "old.example") // on the connection that was open
	if err := os.WriteFile(cfg.Access.TLSCert, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	clock <- now.Add(2 * time.Hour)
	dialTLS(t, inner.Addr().String()).want(t, "new.example")

	res, err := http.Get("http://" + inner.Addr().String()) // from this machine, without TLS
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if body, _ := io.ReadAll(res.Body); string(body) != "false" {
		t.Errorf("without TLS: %s", body)
	}
	http.DefaultClient.CloseIdleConnections()
}

type tlsConn struct {
	*tls.Conn
	read *bufio.Reader
}

func dialTLS(t *testing.T, address string) tlsConn {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test looks at the certificate itself
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return tlsConn{conn, bufio.NewReader(conn)}
}

// want asks once more on the connection, and expects its certificate.
func (c tlsConn) want(t *testing.T, name string) {
	t.Helper()
	if got := c.ConnectionState().PeerCertificates[0].Subject.CommonName; got != name {
		t.Errorf("the certificate is of %q, want %q", got, name)
	}
	if _, err := fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(c.read, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if body, _ := io.ReadAll(res.Body); string(body) != "true" {
		t.Errorf("the server says TLS is %s", body)
	}
}

// elsewhere is a connection that came from another machine.
type elsewhere struct{ net.Conn }

func (elsewhere) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }

type listenElsewhere struct{ net.Listener }

func (l listenElsewhere) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return elsewhere{c}, nil
}

// TestOthersNeedTLS refuses who comes from elsewhere without TLS, and says why;
// who says nothing is let go when the listener ends.
func TestOthersNeedTLS(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := (&certificate{}).secure(listenElsewhere{inner})
	silent, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	conn, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprint(conn, "G"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusBadRequest {
		t.Errorf("it is answered %d", res.StatusCode)
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if _, err := ln.Accept(); err == nil {
		t.Error("it goes on after its end")
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("who said nothing is kept")
	}
}
