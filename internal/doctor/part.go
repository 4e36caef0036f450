package doctor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// binaries looks at the sentry and the guest.
func binaries(o Options) []Finding {
	if o.BinariesErr != nil {
		return []Finding{missing("sentry and guest", o.BinariesErr)}
	}
	return []Finding{binary("sentry", o.Sentry), binary("guest", o.Guest)}
}

func guest(o Options) Finding {
	if o.BinariesErr != nil {
		return missing("guest", o.BinariesErr)
	}
	return binary("guest", o.Guest)
}

func missing(name string, err error) Finding {
	return Finding{
		Name: name, Level: Lack, Found: err.Error(), Cost: "no sandbox can be started",
		Remedy: "use a release build, which has them inside, or build them with make build",
	}
}

func binary(name, path string) Finding {
	f, err := os.Open(path)
	if err != nil {
		return missing(name, err)
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return missing(name, err)
	}
	if info, err := f.Stat(); err == nil && info.Mode()&0o111 == 0 {
		return Finding{Name: name, Level: Lack, Found: path + " is not executable", Cost: "no sandbox can be started", Remedy: "chmod 755 " + path}
	}
	return Finding{Name: name, Level: OK, Found: "sha256:" + hex.EncodeToString(h.Sum(nil))[:16] + " " + path}
}

// bucketTime bounds how long the bucket may take to answer.
const bucketTime = 10 * time.Second

// bucket tries to reach the bucket of the blobs.
func bucket(ctx context.Context, o Options) *Finding {
	ctx, cancel := context.WithTimeout(ctx, bucketTime)
	defer cancel()
	if err := o.Reach(ctx); err != nil {
		return &Finding{
			Name: "bucket", Level: Lack, Found: err.Error(), Cost: "no result with large artifacts or a snapshot can be kept, and none of those that are be read",
			Remedy: "look at AUREA_BLOBS, AWS_ENDPOINT_URL_S3 and the credentials, and whether the server answers",
		}
	}
	return &Finding{Name: "bucket", Level: OK, Found: o.Bucket + " can be reached"}
}

// engineTime bounds how long the engine may take to answer.
const engineTime = 3 * time.Second

// engine asks the Docker Engine for its version.
func engine(ctx context.Context, host string) []Finding {
	const name = "docker engine"
	network, address, ok := strings.Cut(host, "://")
	if !ok || network != "unix" && network != "tcp" {
		return []Finding{{Name: name, Level: Lack, Found: "no address", Cost: "no container can be made", Remedy: "set DOCKER_HOST, as unix:///var/run/docker.sock"}}
	}
	client := &http.Client{Timeout: engineTime, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, address)
		},
	}}
	version, err := askVersion(ctx, client)
	if err != nil {
		return []Finding{{
			Name: name, Level: Lack, Found: err.Error(), Cost: "no container can be made",
			Remedy: "install and start Docker Engine (Debian: docker.io), and let the worker reach its socket",
		}}
	}
	return []Finding{{Name: name, Level: OK, Found: version}}
}

func askVersion(ctx context.Context, client *http.Client) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/version", http.NoBody)
	if err != nil {
		return "", fmt.Errorf("ask the engine: %w", err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("ask the engine: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	var v struct{ Version, APIVersion, KernelVersion string }
	if err := json.NewDecoder(io.LimitReader(answer.Body, 1<<20)).Decode(&v); err != nil || v.Version == "" {
		return "", fmt.Errorf("the engine does not say its version: %v", answer.Status)
	}
	return fmt.Sprintf("%s, API %s", v.Version, v.APIVersion), nil
}
