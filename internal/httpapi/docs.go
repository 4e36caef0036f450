package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/aurea-dev/aurea/web/apidocs"
)

// registerDocs serves the OpenAPI description and the pages that show it. It
// comes after all operations. The description is written when it is first
// asked for, so that no start waits for it.
func (a *API) registerDocs() error {
	for path, doc := range map[string]struct {
		kind  string
		write func() ([]byte, error)
	}{
		"/openapi.json": {"application/json", func() ([]byte, error) { return json.Marshal(a.huma.OpenAPI()) }},
		"/openapi.yaml": {"application/yaml", a.huma.OpenAPI().YAML},
	} {
		body := sync.OnceValues(doc.write)
		a.page(path, func(w http.ResponseWriter, r *http.Request) {
			text, err := body()
			if err != nil {
				a.refuse(w, r, fmt.Errorf("write OpenAPI description: %w", err))
				return
			}
			w.Header().Set("Content-Type", doc.kind)
			_, _ = w.Write(text) // a client that has gone needs no answer
		})
	}
	assets, err := apidocs.Load()
	if err != nil {
		return err
	}
	for _, asset := range assets {
		a.page(asset.Path, asset.ServeHTTP)
	}
	return nil
}
