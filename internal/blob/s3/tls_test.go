package s3_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aurea-dev/aurea/internal/blob/s3"
	"github.com/aurea-dev/aurea/internal/blob/s3/s3test"
)

// certificate makes one for loopback that only its own file vouches for.
func certificate(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, bytes []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	secure, err := s3test.Start(t.Context(), cert, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := secure.Stop(); err != nil {
			t.Error(err)
		}
	})
	name, err := secure.Bucket()
	if err != nil {
		t.Fatal(err)
	}
	c := s3.Config{Endpoint: secure.Endpoint, Bucket: name, AccessKey: s3test.AccessKey, SecretKey: s3test.SecretKey, CAFile: cert}
	put(t, open(t, c), make([]byte, part+1))
	c.CAFile = ""
	if err := s3.Reach(t.Context(), c); err == nil {
		t.Error("a server that nobody vouches for is trusted")
	}
}
