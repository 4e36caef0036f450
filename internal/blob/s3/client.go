package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/aurea-dev/aurea/internal/fault"
)

// Config says which bucket, and how it is reached.
type Config struct {
	Bucket string
	Prefix string // of all objects, without slashes around it; "" is none
	// Endpoint is the address of the server; "" is Amazon's.
	Endpoint string
	Region   string
	// PathStyle puts the bucket into the path rather than into the host name.
	// nil decides by the endpoint.
	PathStyle *bool
	// CAFile names a file of certificates that are trusted beside the system's.
	CAFile string

	// The credentials: keys, or a file of profiles, or where both are missing
	// those of the machine.
	AccessKey, SecretKey, SessionToken string
	CredentialsFile, Profile           string

	Logger *slog.Logger
}

const (
	dialTime = 10 * time.Second
	// stallTime is how long a connection may carry nothing while something is
	// asked for.
	stallTime = time.Minute
	// requests is how often one is sent before it is given up, with growing
	// pauses of a second at most between them.
	requests = 6
	amazon   = "https://s3.amazonaws.com"
)

// connect makes a client. It sends nothing.
func connect(c Config) (*Store, error) {
	endpoint := c.Endpoint
	if endpoint == "" {
		endpoint = amazon
	} else if c.Region == "" {
		c.Region = "us-east-1" // what private servers are asked for; Amazon's are looked up
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the address of the bucket is none")
	}
	transport, err := newTransport(c.CAFile)
	if err != nil {
		return nil, err
	}
	lookup := minio.BucketLookupAuto
	if c.PathStyle != nil {
		lookup = minio.BucketLookupDNS
		if *c.PathStyle {
			lookup = minio.BucketLookupPath
		}
	}
	core, err := minio.NewCore(u.Host, &minio.Options{
		Creds: c.credentials(), Secure: u.Scheme == "https", Region: c.Region, BucketLookup: lookup, Transport: transport, MaxRetries: requests,
	})
	if err != nil {
		return nil, fault.New(fault.Invalid, "reach the bucket %s: %w", c.Bucket, err)
	}
	s := &Store{core: core, bucket: c.Bucket, name: c.Bucket, log: c.Logger, token: c.SessionToken, idle: transport.CloseIdleConnections}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if c.Prefix != "" {
		s.prefix = strings.Trim(c.Prefix, "/") + "/"
	}
	if c.Endpoint != "" {
		s.name += " at " + u.Host
	}
	return s, nil
}

// credentials takes what is set, and asks the machine only when nothing is.
func (c Config) credentials() *credentials.Credentials {
	switch {
	case c.AccessKey != "":
		return credentials.NewStaticV4(c.AccessKey, c.SecretKey, c.SessionToken)
	case c.CredentialsFile != "" || c.Profile != "":
		return credentials.NewFileAWSCredentials(c.CredentialsFile, c.Profile)
	}
	return credentials.NewChainCredentials([]credentials.Provider{&credentials.FileAWSCredentials{}, &credentials.IAM{}})
}

func newTransport(caFile string) (*http.Transport, error) {
	dialer := &net.Dialer{Timeout: dialTime}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return stalling{conn}, nil
		},
		TLSHandshakeTimeout: dialTime, ResponseHeaderTimeout: stallTime, ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost: 32, IdleConnTimeout: stallTime,
		DisableCompression: true, // blobs are bytes, as they were put
	}
	if caFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fault.New(fault.Invalid, "read the certificates for the bucket: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the certificates of the system: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fault.New(fault.Invalid, "%s holds no certificates", caFile)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}

// stalling is a connection that ends when it carries nothing for too long.
// Writing counts for the reader too, who waits meanwhile for the answer.
type stalling struct{ net.Conn }

func (c stalling) Read(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(stallTime)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c stalling) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(stallTime)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
