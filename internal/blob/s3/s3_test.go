package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aurea-dev/aurea/internal/blob"
	"github.com/aurea-dev/aurea/internal/blob/blobtest"
	"github.com/aurea-dev/aurea/internal/blob/s3"
	"github.com/aurea-dev/aurea/internal/blob/s3/s3test"
	"github.com/aurea-dev/aurea/internal/fault"
)

// server is the one of this package's tests.
var server *s3test.Server

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if reason := s3test.Missing(); reason != "" {
		fmt.Fprintln(os.Stderr, "left out:", reason)
		if os.Getenv("CI") == "true" {
			return 1
		}
		return 0
	}
	var err error
	if server, err = s3test.Start(context.Background(), "", ""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// part is the size up to which a blob goes in one request.
const part = 5 << 20

// bucket is an empty one.
func bucket(t *testing.T) s3.Config {
	t.Helper()
	name, err := server.Bucket()
	if err != nil {
		t.Fatal(err)
	}
	return s3.Config{Endpoint: server.Endpoint, Bucket: name, Prefix: "some/where", AccessKey: s3test.AccessKey, SecretKey: s3test.SecretKey}
}

func open(t *testing.T, c s3.Config) *s3.Store {
	t.Helper()
	s, err := s3.Open(t.Context(), c)
	if err != nil {
		t.Fatalf("%v\n%s", err, server.Said())
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// file is where the server keeps an object.
func file(c s3.Config, kind, digest string) string {
	return filepath.Join(server.Folder(c.Bucket), c.Prefix, kind, digest)
}

func age(t *testing.T, path string, ago time.Duration) {
	t.Helper()
	at := time.Now().Add(-ago)
	if err := os.Chtimes(path, at, at); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

func put(t *testing.T, s blob.Store, data []byte) string {
	t.Helper()
	digest := blob.Digest(data)
	if err := s.Put(t.Context(), digest, int64(len(data)), bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	return digest
}

func TestStore(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T) blobtest.Place {
		c := bucket(t)
		return blobtest.Place{
			Open: func(t *testing.T) blob.Store { return open(t, c) },
			Age: func(t *testing.T, digest string, ago time.Duration) {
				age(t, file(c, "blob", digest), ago)
				age(t, file(c, "wanted", digest), ago)
			},
			Part: part,
		}
	})
}

func TestPrefixesAreApart(t *testing.T) {
	t.Parallel()
	c := bucket(t)
	one := open(t, c)
	c.Prefix = ""
	digest := put(t, one, []byte("mine"))
	other := open(t, c)
	if there, err := other.Has(t.Context(), digest); there || err != nil {
		t.Error(there, err)
	}
	if err := other.Walk(t.Context(), func(b blob.Info) error { t.Errorf("saw %s", b.Digest); return nil }); err != nil {
		t.Error(err)
	}
}

// What lies in the bucket and is not what was put is never handed out as whole.
func TestDamageIsSeen(t *testing.T) {
	t.Parallel()
	c := bucket(t)
	s := open(t, c)
	small, large := []byte("small"), bytes.Repeat([]byte("large"), part/4)
	for _, data := range [][]byte{small, large} {
		digest := put(t, s, data)
		f, err := os.OpenFile(file(c, "blob", digest), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("X"), 1); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		b, _, err := s.Open(t.Context(), digest)
		if err == nil {
			var got []byte
			got, err = io.ReadAll(b)
			_ = b.Close()
			if len(got) >= len(data) {
				t.Errorf("all of %d damaged bytes were handed out", len(data))
			}
		}
		if fault.CodeOf(err) != "blob_damaged" {
			t.Errorf("%d damaged bytes: %v", len(data), err)
		}
	}
}

// proxy stands before the server; handle may answer itself.
func proxy(t *testing.T, c *s3.Config, handle func(w http.ResponseWriter, r *http.Request, pass http.Handler)) {
	t.Helper()
	to, err := url.Parse(server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	pass := &httputil.ReverseProxy{
		Transport: transport,
		// The host is signed.
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = to.Scheme, to.Host, p.In.Host
		},
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r, pass) }))
	t.Cleanup(func() { front.Close(); transport.CloseIdleConnections() })
	c.Endpoint = front.URL
}

// cutter cuts the answer after so many bytes.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	if len(p) > c.left {
		panic(http.ErrAbortHandler)
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}

// Every other answer is an error of the server or is cut in its middle.
func TestABucketThatFailsNowAndThen(t *testing.T) {
	t.Parallel()
	c := bucket(t)
	var asked, cut atomic.Int64
	proxy(t, &c, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		switch n := asked.Add(1); {
		case n%2 == 0:
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blob/") && cut.Add(1) < 4:
			pass.ServeHTTP(&cutter{w, 2 << 20}, r)
		default:
			pass.ServeHTTP(w, r)
		}
	})
	s := open(t, c)
	for _, data := range [][]byte{[]byte("small"), bytes.Repeat([]byte("large"), part/4)} {
		digest := put(t, s, data)
		b, _, err := s.Open(t.Context(), digest)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(b)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes came back as %d, %v", len(data), len(got), err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Who asks for a blob while it is removed is told what became of it, and no
// sooner.
func TestNobodyIsToldOfABlobThatThenGoes(t *testing.T) {
	t.Parallel()
	c := bucket(t)
	plain := open(t, c)
	digest := put(t, plain, []byte("old"))
	age(t, file(c, "blob", digest), 5*time.Hour)

	slow, curious := c, c
	begun, looked := make(chan struct{}), make(chan struct{})
	var once sync.Once
	proxy(t, &slow, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/blob/") {
			close(begun)
			<-looked
		}
		pass.ServeHTTP(w, r)
	})
	proxy(t, &curious, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		pass.ServeHTTP(w, r)
		if strings.Contains(r.URL.Query().Get("prefix"), "removing/") {
			once.Do(func() { close(looked) })
		}
	})
	remover, asker := open(t, slow), open(t, curious)
	var all sync.WaitGroup
	all.Go(func() {
		if gone, err := remover.Remove(t.Context(), digest, time.Now().Add(-time.Hour)); !gone || err != nil {
			t.Error(gone, err)
		}
	})
	<-begun
	if there, err := asker.Has(t.Context(), digest); there || err != nil {
		t.Errorf("told that it is there: %v, %v", there, err)
	}
	all.Wait()
	put(t, asker, []byte("old"))
	if there, err := plain.Has(t.Context(), digest); !there || err != nil {
		t.Error(there, err)
	}
}

// The mark of somebody who died while removing holds nobody up for good.
func TestAMarkThatIsLeft(t *testing.T) {
	t.Parallel()
	c := bucket(t)
	s := open(t, c)
	digest := put(t, s, []byte("old"))
	age(t, file(c, "blob", digest), 5*time.Hour)
	left := file(c, "removing", digest+".DEAD")
	if err := os.MkdirAll(filepath.Dir(left), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	age(t, left, 2*time.Hour)
	if there, err := s.Has(t.Context(), digest); !there || err != nil {
		t.Fatal(there, err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("the mark is still there")
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	t.Parallel()
	good := bucket(t)
	for what, change := range map[string]func(*s3.Config){
		"no such bucket":   func(c *s3.Config) { c.Bucket = "no-such-bucket" },
		"a wrong secret":   func(c *s3.Config) { c.SecretKey = "wrong" },
		"nobody":           func(c *s3.Config) { c.AccessKey = "nobody" },
		"no certificates":  func(c *s3.Config) { c.CAFile = "/dev/null" },
		"no such file":     func(c *s3.Config) { c.CAFile = "/does/not/exist" },
		"a host with spit": func(c *s3.Config) { c.Endpoint = "http://%zz" },
	} {
		c := good
		change(&c)
		if _, err := s3.Open(t.Context(), c); err == nil || fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: got %v", what, err)
		}
		if err := s3.Reach(t.Context(), c); err == nil {
			t.Errorf("%s can be reached", what)
		}
	}
	if err := s3.Reach(t.Context(), good); err != nil {
		t.Error(err)
	}
}

// A bucket that is away does not keep a manager from starting.
func TestABucketThatIsAway(t *testing.T) {
	t.Parallel()
	c := bucket(t)
	var away atomic.Bool
	away.Store(true)
	proxy(t, &c, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if away.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		pass.ServeHTTP(w, r)
	})
	s := open(t, c)
	if _, err := s.Has(t.Context(), blob.Digest([]byte("x"))); !fault.Is(err, fault.Unavailable) {
		t.Errorf("got %v, want unavailable", err)
	}
	away.Store(false)
	put(t, s, []byte("x"))
}

func TestCredentialsOfAFile(t *testing.T) {
	t.Parallel()
	c := bucket(t)
	path := filepath.Join(t.TempDir(), "credentials")
	text := fmt.Sprintf("[default]\naws_access_key_id = no\naws_secret_access_key = no\n[blobs]\naws_access_key_id = %s\naws_secret_access_key = %s\n", c.AccessKey, c.SecretKey)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.AccessKey, c.SecretKey, c.CredentialsFile, c.Profile = "", "", path, "blobs"
	put(t, open(t, c), []byte("x"))
	c.Profile = ""
	if _, err := s3.Open(t.Context(), c); err == nil {
		t.Error("the wrong profile opens it")
	}
}
