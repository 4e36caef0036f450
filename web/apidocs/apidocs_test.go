package apidocs_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/aurea-dev/aurea/web/apidocs"
)

func load(t *testing.T) map[string]apidocs.Asset {
	t.Helper()
	assets, err := apidocs.Load()
	if err != nil {
		t.Fatal(err)
	}
	byPath := map[string]apidocs.Asset{}
	for _, a := range assets {
		byPath[a.Path] = a
	}
	return byPath
}

func TestPagesLoadOnlyWhatIsOurs(t *testing.T) {
	t.Parallel()
	assets := load(t)
	refs := regexp.MustCompile(`(?:src|href)="([^"]*)"`)
	for _, page := range []string{"/docs", "/redoc"} {
		body, err := assets[page].Plain()
		if err != nil || len(body) == 0 {
			t.Fatalf("%s: %v", page, err)
		}
		found := refs.FindAllSubmatch(body, -1)
		if len(found) < 3 {
			t.Fatalf("%s loads %d things", page, len(found))
		}
		for _, m := range found {
			ref := string(m[1])
			if ref == "data:," {
				continue
			}
			if _, ok := assets[ref]; !ok {
				t.Errorf("%s loads %q, which is not embedded", page, ref)
			}
		}
		if strings.Contains(string(body), "<style") || regexp.MustCompile(`<script>`).Match(body) {
			t.Errorf("%s has inline code, which its policy forbids", page)
		}
	}
}

// Scripts may name foreign addresses in texts and namespaces, but must not
// load pictures, fonts or scripts from there.
func TestScriptsAndStylesFetchNothingForeign(t *testing.T) {
	t.Parallel()
	for path, a := range load(t) {
		body, err := a.Plain()
		if err != nil {
			t.Fatal(err)
		}
		for _, address := range foreign(string(body)) {
			t.Errorf("%s fetches %q", path, address)
		}
		if strings.HasSuffix(path, "start.js") && strings.Contains(string(body), "://") {
			t.Errorf("%s names an address", path)
		}
		if strings.Contains(string(body), "cdn.redoc.ly") {
			t.Errorf("%s still names its maker's server", path)
		}
	}
}

func TestForeignAddressesAreFound(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{src:"https://x/y"}`, `<img src="http://x">`, `a{b:url(https://x)}`, `url('http://x')`, `@import "https://x"`, `importScripts("https://x")`} {
		if len(foreign(text)) != 1 {
			t.Errorf("%s is not found", text)
		}
	}
	if found := foreign(`xmlns="http://www.w3.org/2000/svg" see https://example.org`); len(found) != 0 {
		t.Errorf("found %v", found)
	}
}

// foreign returns the addresses in a text that a browser would load.
func foreign(text string) (found []string) {
	for at := 0; ; at++ {
		next := strings.Index(text[at:], "://")
		if next < 0 {
			return found
		}
		at += next
		start := strings.TrimSuffix(strings.TrimSuffix(text[max(0, at-24):at], "https"), "http")
		start = strings.TrimRight(start, `"' \`)
		for _, loads := range []string{"src:", "src=", "url(", "@import", "importScripts("} {
			if strings.HasSuffix(start, loads) {
				found = append(found, text[max(0, at-24):min(len(text), at+40)])
			}
		}
	}
}

func TestServing(t *testing.T) {
	t.Parallel()
	for path, a := range load(t) {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		plain := httptest.NewRecorder()
		a.ServeHTTP(plain, r)
		r.Header.Set("Accept-Encoding", "gzip, br")
		packed := httptest.NewRecorder()
		a.ServeHTTP(packed, r)
		if plain.Code != 200 || packed.Code != 200 {
			t.Fatalf("%s: %d, %d", path, plain.Code, packed.Code)
		}
		body := io.Reader(packed.Body)
		if packed.Header().Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(packed.Body)
			if err != nil {
				t.Fatal(err)
			}
			body = z
		}
		got, err := io.ReadAll(body)
		if err != nil || string(got) != plain.Body.String() || len(got) == 0 {
			t.Errorf("%s: packed and plain differ (%v)", path, err)
		}
		if !strings.Contains(plain.Header().Get("Content-Security-Policy"), "default-src 'none'") || plain.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s: %v", path, plain.Header())
		}
		r.Header.Set("If-None-Match", packed.Header().Get("ETag"))
		again := httptest.NewRecorder()
		a.ServeHTTP(again, r)
		if again.Code != http.StatusNotModified {
			t.Errorf("%s: asked again, answers %d", path, again.Code)
		}
	}
}
