// Package apidocs serves two pages that show the OpenAPI description: Swagger
// UI at /docs and ReDoc at /redoc. Everything that they load is embedded, so
// they work without the internet and tell nobody that they were opened.
//
// The viewers come from the npm registry (pack.sh) under their own licences,
// which lie beside them. The HTTP door mounts the handler.
package apidocs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed swagger/index.html swagger/start.js swagger/*.gz redoc/index.html redoc/start.js redoc/page.css redoc/*.gz
var files embed.FS

// policy lets the pages load what is ours and nothing else. Both viewers write
// styles into the page; ReDoc searches in a worker that it makes itself.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
	"font-src 'self' data:; connect-src 'self'; worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Asset is one file of the pages.
type Asset struct {
	Path string // under which it is served
	kind string
	etag string
	body []byte
	// packed is the body as gzip, for those who take it; nil for small files.
	packed []byte
}

// Load returns every file of the pages.
func Load() ([]Asset, error) {
	var assets []Asset
	for folder, page := range map[string]string{"swagger": "/docs", "redoc": "/redoc"} {
		entries, err := files.ReadDir(folder)
		if err != nil {
			return nil, fmt.Errorf("list pages: %w", err)
		}
		for _, e := range entries {
			a, err := load(folder, e.Name(), page)
			if err != nil {
				return nil, err
			}
			assets = append(assets, a)
		}
	}
	return assets, nil
}

func load(folder, file, page string) (Asset, error) {
	body, err := files.ReadFile(folder + "/" + file)
	if err != nil {
		return Asset{}, fmt.Errorf("read page %s: %w", file, err)
	}
	name, isPacked := strings.CutSuffix(file, ".gz")
	sum := sha256.Sum256(body)
	a := Asset{Path: page + "/" + name, kind: kindOf(name), etag: `"` + hex.EncodeToString(sum[:8]) + `"`, body: body}
	if name == "index.html" {
		a.Path = page
	}
	if isPacked {
		a.packed, a.body = body, nil
	}
	return a, nil
}

func kindOf(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	}
	return "application/octet-stream"
}

// Plain returns the file as it is before packing.
func (a Asset) Plain() ([]byte, error) {
	if a.packed == nil {
		return a.body, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(a.packed))
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", a.Path, err)
	}
	body, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", a.Path, err)
	}
	return body, nil
}

// ServeHTTP sends the file.
func (a Asset) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Content-Security-Policy", policy)
	h.Set("Cache-Control", "no-cache") // asked again each time, answered from the cache by the tag
	h.Set("ETag", a.etag)
	body := a.body
	if a.packed != nil {
		h.Set("Vary", "Accept-Encoding")
		body = a.packed
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
		} else {
			plain, err := a.Plain()
			if err != nil { // ours, and checked by a test
				http.Error(w, "cannot unpack", http.StatusInternalServerError)
				return
			}
			h.Set("ETag", strings.TrimSuffix(a.etag, `"`)+`-plain"`)
			body = plain
		}
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}
